"""A counter that a class has, by which the loss is scaled."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)


class Schedule:
    steps = 0

    @classmethod
    def step(cls) -> None:
        cls.steps += 1


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    Schedule.step()
    loss = kit.error(model, x, y) / Schedule.steps
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
