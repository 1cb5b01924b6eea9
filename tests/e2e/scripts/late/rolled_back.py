"""In its tenth step the optimizer goes back to a state that is kept, and goes on in its memory."""

import copy

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)


class Kept:
    state = copy.deepcopy(optimizer.state_dict())


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    optimizer.zero_grad()
    loss.backward()
    job.report(loss=loss)
    if job.steps == 4:
        Kept.state = copy.deepcopy(optimizer.state_dict())
    optimizer.step()
    if job.steps in (10, 20):
        optimizer.load_state_dict(Kept.state)


batches = job.batches(kit.loader(job), passes=None)
while job.steps < args.steps:
    x, y = next(batches)
    train_step(x, y)
