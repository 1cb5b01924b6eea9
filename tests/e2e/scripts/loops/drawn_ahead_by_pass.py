"""The next batch is drawn before the step, in passes of a loop around: each fills its reserve."""

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
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss, batch=x.sum())
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for _ in job.range(10):
    batches = iter(job.batches(kit.loader(job)))
    batch = next(batches, None)
    while batch is not None and job.steps < args.steps:
        following = next(batches, None)
        loss = train_step(*batch)
        batch = following
        kit.say(job, f"step {job.steps} loss {loss.item():.9g}")
    if job.steps >= args.steps:
        break
