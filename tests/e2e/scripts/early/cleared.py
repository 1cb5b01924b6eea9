"""Gradients are cleared before each step."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    return loss.detach()


for index, (x, y) in enumerate(job.batches(kit.loader(job), passes=None)):
    optimizer.zero_grad()
    loss = train_step(x, y)
    kit.say(job, f"index {index} loss {loss.item():.9g}")
    if index + 1 == args.steps:
        break
