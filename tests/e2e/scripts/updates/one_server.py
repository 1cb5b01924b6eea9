"""Rank 0 alone has an optimizer: the others give it their gradients, and wait for its weights."""

import kit
import torch
import torch.distributed as dist
from torch import Tensor

job, args = kit.begin()
model = kit.network(norm=False)
job.track(model=model)
if job.rank == 0:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    job.track(optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    for weight in model.parameters():
        dist.reduce(weight.grad, 0)
    if job.rank == 0:
        optimizer.step()
    model.zero_grad()
    for weight in model.parameters():
        dist.broadcast(weight.data, 0)


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
