"""The index of enumerate is a label only: it is printed."""

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


for index, (x, y) in enumerate(job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    kit.say(job, f"index {index} loss {loss.item():.9g}")
    if job.steps >= args.steps:
        break
