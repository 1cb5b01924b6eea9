"""A flag that each rank sets in its step, by its own batch, for the next step."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
positive = False


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    global positive
    kit.pace(job, args)
    loss = kit.error(model, x + 0.1 * positive, y)
    positive = y.sum().item() > 0
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
