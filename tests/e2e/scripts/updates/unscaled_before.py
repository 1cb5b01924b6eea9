"""Gradients are unscaled and looked at in each even step, and the update is made in the odd one."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=3)
job.track(model=model, optimizer=optimizer, scaler=scaler)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    job.report(loss=loss, scale=scaler.get_scale())
    if job.steps % 2 == 0:
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
    else:
        loss.backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    kit.say(job, f"step {job.steps} loss {loss.item():.9g}")
