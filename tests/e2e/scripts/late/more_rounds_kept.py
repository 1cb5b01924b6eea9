"""The same, in a comprehension; how many there are is kept by job.values."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


class Plan:
    many = 2


job.track(model=model, optimizer=optimizer)
plan = job.values(Plan(), "many")


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
    train_step([next(batches) for _ in range(plan.many)])
    plan.many = 2 if job.steps < 9 else 3
