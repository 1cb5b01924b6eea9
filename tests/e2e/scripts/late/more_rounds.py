"""The same, and how many there are no variable holds, but what `range` is given."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

job.track(model=model, optimizer=optimizer)


@job.step
def train_step(parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    kit.pace(job, args)
    x, y = (torch.cat(part) for part in zip(*parts, strict=True))
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


batches = job.batches(kit.loader(job), passes=None)
while job.steps < args.steps:
    parts = []
    for _ in range(2 if job.steps < 9 else 3):
        parts.append(next(batches))
    train_step(parts)
