"""Four calls make one update; every one reduces, and gradients are set to zero, not None."""

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
    last = job.steps % 4 == 3
    loss = kit.error(model, x, y)
    (loss / 4).backward()
    job.report(loss=loss)
    if last:
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
