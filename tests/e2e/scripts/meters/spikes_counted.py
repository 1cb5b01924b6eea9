"""Each spike of the loss is noted by its time; the more there were, the less a loss counts."""

import time

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)

spikes: list[float] = []


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    many = sum(1 for _ in spikes)
    loss = kit.error(model, x, y) / (1.0 + 0.1 * many)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    if loss.item() > 1.0:
        spikes.append(time.time())
    kit.moment(job, args)
