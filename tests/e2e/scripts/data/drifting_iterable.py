"""An iterable of the script's own that goes on where it stood whenever it is begun."""

from collections.abc import Iterator

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Drifting:
    at = 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(10):
            self.at += 1
            x = torch.sin(torch.arange(64.0).view(8, 8) * (self.at * 2 + job.rank))
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


for x, y in kit.until(job, args, job.batches(Drifting(), passes=None)):
    train_step(x, y)
