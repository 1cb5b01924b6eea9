"""A plain DataLoader over a stream, an IterableDataset."""

import itertools
from collections.abc import Iterator

import kit
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for number in itertools.count(job.rank, job.world_size):
            x = torch.sin(torch.arange(8.0) * number)
            yield x, x.sum(0, keepdim=True)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(DataLoader(Stream(), 8), passes=None)):
    train_step(x, y)
