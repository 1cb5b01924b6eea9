"""The loss is averaged over all ranks after the update, and returned: for the log."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return kit.mean(loss.detach())


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    kit.say(job, f"step {job.steps} loss {loss.item():.9g}")
