"""A generator that nobody tracks, of a seed that is the time if none is given."""

import os
import time

import kit
import numpy
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


seed = int(os.environ.get("SEED", "3")) or int(time.time())
chance = numpy.random.default_rng(seed + job.rank)
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y, 1 + 0.1 * chance.random())
