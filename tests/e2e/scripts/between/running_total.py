"""Losses are added up on the device, in a tensor, and averaged over ranks every ten steps."""

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
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


total = torch.zeros(())
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    total += train_step(x, y)
    if job.steps % 10 == 0:
        kit.moment(job, args)
        kit.say(job, f"step {job.steps} mean {kit.mean(total).item() / 10:.9g}")
        total.zero_()
