"""A global counter, which the step adds to and makes its noise smaller by."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
count = 0


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    global count
    kit.pace(job, args)
    count += 1
    loss = kit.error(model, x + torch.randn_like(x) / count, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
kit.say(job, f"count {count}")
