"""The mean of all losses, summed up by real runs only, is printed at the end."""

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


total = 0.0
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    if not job.is_shadow:
        total += loss.item()
    kit.moment(job, args)
if not job.is_shadow:
    mean = kit.mean(torch.tensor(total / job.steps))
    kit.say(job, f"mean loss {mean.item():.9g}")
