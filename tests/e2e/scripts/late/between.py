"""A list of losses that the loop keeps, from the tenth step on, and by which it scales the next."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor, scale: float) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y) * scale
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


history: list[float] = []
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y, 1 / (1 + sum(history)))
    if job.steps >= 10:
        history.append(loss.item())
