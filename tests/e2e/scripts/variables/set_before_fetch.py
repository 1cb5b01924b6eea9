"""A trainer is given its scale, then a batch is fetched, and the step uses both."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Trainer:
    pass


trainer = Trainer()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y) * trainer.scale
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


batches = job.batches(kit.loader(job), passes=None)
while job.steps < args.steps:
    trainer.scale = 1.0 / (1 + job.steps)
    x, y = next(batches)
    train_step(x, y)
