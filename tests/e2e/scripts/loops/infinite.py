"""A generator that begins a pass after the other, for ever."""

from collections.abc import Iterator

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def infinite() -> Iterator[list[Tensor]]:
    loader = kit.loader(job)
    while True:
        yield from job.batches(loader)


for x, y in kit.until(job, args, infinite()):
    train_step(x, y)
