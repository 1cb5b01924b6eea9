"""A context gives what a loss counts; behind each step there is one for the next."""

from contextlib import nullcontext

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)

scale = nullcontext(1.0)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    with scale as factor:
        loss = kit.error(model, x, y) * factor
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    scale = nullcontext(1.0 / (0.5 + loss.item()))
    kit.moment(job, args)
