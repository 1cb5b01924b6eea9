"""The learning rate of a step follows from the index that enumerate gives."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
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


for index, (x, y) in enumerate(job.batches(kit.loader(job), passes=None)):
    optimizer.param_groups[0]["lr"] = 0.1 / (1 + 0.1 * index)
    train_step(x, y)
    if index + 1 == args.steps:
        break
kit.say(job, f"lr {optimizer.param_groups[0]['lr']}")
