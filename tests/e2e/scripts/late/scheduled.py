"""A scheduler that the step itself steps, from its tenth call on."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
job.track(model=model, optimizer=optimizer, scheduler=scheduler)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    begins = job.steps >= 9
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    if begins:
        scheduler.step()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
