"""Steps weigh by turns: what goes round lies in no variable, and mostly gives the same."""

import itertools

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor, weight: float) -> Tensor:
    kit.pace(job, args)
    loss = weight * kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


batches = job.batches(kit.loader(job), passes=None)
for weight in itertools.cycle([1.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0]):
    if job.steps >= args.steps:
        break
    train_step(*next(batches), weight)
