"""The schedule goes on once a data pass, between steps."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
job.track(scheduler=scheduler)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for _ in range(4):
    for x, y in kit.until(job, args, job.batches(kit.loader(job))):
        train_step(x, y)
    scheduler.step()
    kit.say(job, f"step {job.steps} lr {scheduler.get_last_lr()[0]}")
    if job.steps >= args.steps:
        break
