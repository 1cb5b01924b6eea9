"""Rates of layers that the script sets behind its steps and never reads: the layers do."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
layers = [nn.Linear(kit.WIDTH, 16), nn.BatchNorm1d(16), nn.Dropout(0.0), nn.Linear(16, 1)]
model = kit.replicated(job, nn.Sequential(*layers), broadcast_buffers=False)
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


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    model.module[1].momentum = 0.5 / (1 + job.steps)
    model.module[2].p = min(0.5, 0.02 * job.steps)
