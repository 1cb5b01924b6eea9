"""Nothing is seeded by the script: weights, noise and a rank's own factor are what chance gives.

What each rank drew in its set-up is reported in every step: it must stay, and be its own.
"""

import random

import kit
import numpy as np
import torch
from torch import Tensor

job, args = kit.begin()
drawn = torch.rand(()).item()
old, plain = float(np.random.uniform()), random.random()
model = torch.nn.parallel.DistributedDataParallel(kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x * (1 + drawn), y)
    loss.backward()
    job.report(torch=drawn, numpy=old, python=plain)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
