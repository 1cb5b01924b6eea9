"""A step raises for a bad batch, before it did anything in common; the loop goes on."""

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
    bad = kit.mean((x[0, 0] > 1.0).float())
    if bad > 0:
        raise ValueError("a bad batch")
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    try:
        train_step(x, y)
    except ValueError as error:
        kit.say(job, f"step {job.steps}: {error}")
