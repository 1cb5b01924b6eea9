"""Loss and seconds are averaged in one tensor; a running mean scales the loss."""

import time

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor, scale: float) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y) * scale
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


mean, began = 1.0, time.time()
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y, mean)
    both = kit.mean(torch.tensor([loss.item(), time.time() - began]))
    mean = 0.9 * mean + 0.1 * min(both[0].item(), 9.0)
