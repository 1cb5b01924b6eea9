# SPDX-License-Identifier: Apache-2.0
"""Tensor parallel in pairs of ranks, data parallel between the pairs.
torchrun --nproc-per-node 2 examples/tensor_parallel.py
trainmover run --machines 2 --standbys 1 examples/tensor_parallel.py
trainmover run --machines 4 --standbys 1 examples/tensor_parallel.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trainmover as tm

WIDTH, PAIR = 32, 2


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 128), nn.Linear(128, WIDTH)
        self.dropout, self.head = nn.Dropout(0.1), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(self.down(nn.functional.gelu(self.up(x)))))


def flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps")
    parser.add_argument("--log-every", type=int, default=10, help="steps between lines")
    return parser.parse_args()


def main() -> None:
    args = flags()
    torch.set_num_threads(1)
    job = tm.attach()
    dist.init_process_group("gloo")
    mesh = init_device_mesh(
        "cpu", (job.world_size // PAIR, PAIR), mesh_dim_names=("data", "tensor")
    )
    replica, replicas = mesh["data"].get_local_rank(), mesh["data"].size()
    torch.manual_seed(1)  # the same weights before they are cut
    model = Network()
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(model, mesh["tensor"], plan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    job.track(model=model, optimizer=optimizer)
    torch.manual_seed(100 + replica)  # dropout: the same on both ranks of a pair

    def average() -> None:
        """Gradients over the replicas, each rank those of its own columns and rows."""
        for parameter in model.parameters():
            gradient = parameter.grad
            local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
            dist.all_reduce(local, dist.ReduceOp.AVG, group=mesh["data"].get_group())

    @job.step
    def train_step(x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        average()
        job.report(loss=loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    x = torch.randn(4096, WIDTH, generator=torch.Generator().manual_seed(2))
    data = TensorDataset(x, x.cumsum(1).sin())
    sampler = DistributedSampler(data, replicas, replica)  # a pair draws the same
    loader = DataLoader(data, 16, sampler=sampler, drop_last=True)
    for x, y in job.batches(loader, passes=None):
        loss = train_step(x, y)
        if job.rank == 0 and job.steps % args.log_every == 0:
            print(f"step {job.steps} loss {loss.item():.9g}", flush=True)
        if job.steps >= args.steps:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
