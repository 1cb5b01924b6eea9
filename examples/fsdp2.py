# SPDX-License-Identifier: Apache-2.0
"""Fully sharded: every rank holds a shard of parameters and optimizer state; or several copies.
torchrun --nproc-per-node 2 examples/fsdp2.py
trainmover run --machines 2 --standbys 1 examples/fsdp2.py
trainmover run --machines 4 --standbys 1 examples/fsdp2.py --replicas 2
"""

import argparse

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trainmover as tm

WIDTH = 32


def flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps")
    parser.add_argument("--replicas", type=int, default=1, help="copies of each shard")
    parser.add_argument("--log-every", type=int, default=10, help="steps between lines")
    return parser.parse_args()


def block() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 128), nn.GELU(), nn.Linear(128, WIDTH))


def main() -> None:
    args = flags()
    torch.set_num_threads(1)
    job = tm.attach()
    dist.init_process_group("gloo")
    shards = job.world_size // args.replicas
    mesh = init_device_mesh("cpu", (args.replicas, shards), mesh_dim_names=("replica", "shard"))
    mesh = mesh if args.replicas > 1 else mesh["shard"]
    torch.manual_seed(1)  # the same weights before they are cut
    model = nn.Sequential(block(), block(), nn.Dropout(0.1))
    for part in model[:2]:
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # after fully_shard
    job.track(model=model, optimizer=optimizer)
    torch.manual_seed(100 + job.rank)  # another dropout mask on every rank

    @job.step
    def train_step(x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        job.report(loss=loss, norm=norm.full_tensor())
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    x = torch.randn(4096, WIDTH, generator=torch.Generator().manual_seed(2))
    data = TensorDataset(x, x.cumsum(1).sin())
    loader = DataLoader(data, 16, sampler=DistributedSampler(data), drop_last=True)
    for x, y in job.batches(loader, passes=None):
        loss = train_step(x, y)
        if job.rank == 0 and job.steps % args.log_every == 0:
            print(f"step {job.steps} loss {loss.item():.9g}", flush=True)
        if job.steps >= args.steps:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
