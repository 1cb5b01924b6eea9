"""Batches are objects with arrays that a step normalises in place; it uses up a mask of numpy's."""

from collections.abc import Sequence

import kit
import numpy
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
left = numpy.ones(2)


class Batch:
    def __init__(self, rows: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.x = torch.stack([x for x, _ in rows])
        self.y = numpy.stack([y.numpy() for _, y in rows])


@job.step
def train_step(batch: Batch) -> Tensor:
    kit.pace(job, args)
    batch.x.sub_(batch.x.mean(0))
    batch.y *= 0.5
    left[0] -= 0.25
    loss = kit.error(model, batch.x, torch.from_numpy(batch.y)) * float(left[0])
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for batch in kit.until(job, args, job.batches(kit.loader(job, collate_fn=Batch), passes=None)):
    train_step(batch)
    left[:] = 1.0
