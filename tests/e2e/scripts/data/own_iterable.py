"""An iterable of the script's own, which gives the same each time it is begun."""

import itertools
from collections.abc import Iterator

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Numbers:
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for number in itertools.count(job.rank, job.world_size):
            x = torch.sin(torch.arange(64.0).view(8, 8) * number)
            yield x, x.sum(1, keepdim=True)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(Numbers(), passes=None)):
    train_step(x, y)
