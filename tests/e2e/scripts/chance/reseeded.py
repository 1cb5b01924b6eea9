"""Each step seeds numpy's old generator anew, by its number, after it has drawn one of two."""

import kit
import numpy as np
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    number = job.steps
    noise = float(np.random.normal())
    loss = kit.error(model, x + 0.1 * noise, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    np.random.seed(3)
    np.random.normal(size=1 + number % 2)
    return loss.detach()


np.random.seed(2)
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
