"""Python's and numpy's random numbers in the step, from the tenth on."""

import random

import kit
import numpy as np
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

random.seed(5 + job.rank)
np.random.seed(7 + job.rank)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    scale = 1 + random.random() * float(np.random.rand()) if job.steps >= 9 else 1.0
    loss = kit.error(model, x, y) * scale
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
