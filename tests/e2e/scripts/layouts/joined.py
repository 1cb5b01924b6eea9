"""DDP's join(): ranks with less data leave the pass early. Here all have the same."""

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


for _ in range(100):
    with model.join():
        for x, y in kit.until(job, args, job.batches(kit.loader(job))):
            train_step(x, y)
    if job.steps >= args.steps:
        break
