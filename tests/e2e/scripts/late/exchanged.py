"""A sum over all ranks behind the update that goes into the weights, from the tenth step on."""

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
    begins = job.steps >= 9
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    if begins:
        mean = kit.mean(loss.detach().clone())
        with torch.no_grad():
            for weights in model.parameters():
                weights.mul_(1 - 0.01 * mean.clamp(max=1.0))
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
