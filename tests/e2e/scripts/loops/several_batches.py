"""Three batches make one step."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(batches: list[list[Tensor]]) -> Tensor:
    kit.pace(job, args)
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


batches = job.batches(kit.loader(job), passes=None)
while job.steps < args.steps:
    train_step([next(batches) for _ in range(3)])
