"""The step draws its batch itself."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
batches = job.batches(kit.loader(job), passes=None)


@job.step
def train_step() -> Tensor:
    kit.pace(job, args)
    x, y = next(batches)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for _ in job.range(args.steps):
    train_step()
