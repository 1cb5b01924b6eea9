"""Replicas part on purpose: after fourteen steps each rank goes on for itself, an ensemble."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.network(norm=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
torch.manual_seed(100 + job.rank)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    together = job.steps < 14
    loss = kit.error(model, x, y)
    optimizer.zero_grad()
    loss.backward()
    job.report(loss=loss)
    if together:
        for parameter in model.parameters():
            kit.mean(parameter.grad)
    optimizer.step()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
