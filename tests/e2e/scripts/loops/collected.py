"""The losses of a pass are collected by a list comprehension around the loop itself."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
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


while job.steps < args.steps:
    batches = kit.until(job, args, job.batches(kit.loader(job)))
    losses = [train_step(x, y).item() for x, y in batches]
    kit.say(job, f"mean loss of {len(losses)} steps {sum(losses) / len(losses):.9g}")
