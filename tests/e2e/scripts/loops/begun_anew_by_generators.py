"""Labelled and unlabelled data, each from a generator that begins its loader anew for ever."""

from collections.abc import Iterator

import kit
import torch
from torch import Tensor
from torch.utils.data import DataLoader

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


def forever(loader: "DataLoader[list[Tensor]]") -> Iterator[list[Tensor]]:
    while True:
        yield from job.batches(loader)


@job.step
def train_step(x: Tensor, y: Tensor, free: Tensor) -> Tensor:
    kit.pace(job, args)
    noisy = free + 0.1 * torch.randn_like(free)
    loss = kit.error(model, x, y) + 0.1 * (model.module(noisy) - model.module(free)).square().mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


labelled = forever(kit.loader(job, kit.dataset(80)))
unlabelled = forever(kit.loader(job, kit.dataset(144, seed=6)))
while job.steps < args.steps:
    (x, y), (free, _) = next(labelled), next(unlabelled)
    train_step(x, y, free)
