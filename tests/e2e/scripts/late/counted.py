"""A list in which the step keeps its losses, from the tenth on, and by which it scales them."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

job.track(model=model, optimizer=optimizer)
seen: list[float] = []


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    begins = job.steps >= 9
    loss = kit.error(model, x, y) / (1 + len(seen))
    loss.backward()
    job.report(loss=loss)
    if begins:
        seen.append(float(loss.detach()))
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
