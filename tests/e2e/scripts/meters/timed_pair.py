"""A tuple keeps a mean and when it was, from the beginning on; the rate follows from the mean."""

import time

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


last = (1.0, time.time())
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y).item()
    last = (0.9 * last[0] + 0.1 * loss, time.time())
    optimizer.param_groups[0]["lr"] = 1e-2 / (1 + last[0])
