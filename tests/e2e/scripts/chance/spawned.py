"""Each step has a generator of its own, spawned by one that is tracked."""

import kit
import numpy
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
chance = numpy.random.default_rng(3 + job.rank)
job.track(model=model, optimizer=optimizer, chance=chance)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    [own] = chance.spawn(1)
    noise = torch.from_numpy(own.standard_normal(x.shape)).float()
    loss = kit.error(model, x + 0.1 * noise, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
