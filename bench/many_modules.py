# SPDX-License-Identifier: Apache-2.0
"""160 modules with 159 buffers, as a ResNet-50 has them, and hardly anything to compute."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trainmover as tm

NORMS = 53
WIDTH = 16


def built() -> nn.Module:
    """Three modules a norm, and what they are in; three buffers a norm."""
    parts: list[nn.Module] = []
    for _ in range(NORMS):
        parts += [nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU()]
    return nn.Sequential(*parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps")
    parser.add_argument("--batch", type=int, default=8, help="samples a rank and step")
    options = parser.parse_args()
    torch.set_num_threads(1)
    job = tm.attach()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(built())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    job.track(model=model, optimizer=optimizer)

    @job.step
    def train_step(inputs: Tensor, targets: Tensor) -> Tensor:
        loss = F.mse_loss(model(inputs), targets)
        loss.backward()
        job.report(loss=loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    data = TensorDataset(torch.randn(4096, WIDTH), torch.randn(4096, WIDTH))
    sampler = DistributedSampler[tuple[Tensor, ...]](data, job.world_size, job.rank, drop_last=True)
    loader = DataLoader(data, options.batch, sampler=sampler, drop_last=True)
    for inputs, targets in job.batches(loader, passes=None):
        train_step(inputs, targets)
        if job.steps >= options.steps:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
