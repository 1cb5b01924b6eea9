"""A batch is drawn ahead, and from the tenth step on the loop counts for itself."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor, count: int) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y) / (1 + count)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


batches = job.batches(kit.loader(job), passes=None)
x, y = next(batches)
count = 0
while job.steps < args.steps:
    following = next(batches)
    train_step(x, y, count)
    x, y = following
    if job.steps >= 9:
        count += 1
