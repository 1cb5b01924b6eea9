"""The same, and the batch is fetched in a line before."""

import kit
import torch
from torch import Tensor


class Seen:
    mean = 1.0


job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
seen = Seen()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


batches = iter(job.batches(kit.loader(job), passes=None))
while job.steps < args.steps:
    x, y = next(batches)
    seen.mean = 0.9 * seen.mean + 0.1 * train_step(x, y).item()
    optimizer.param_groups[0]["lr"] = 1e-2 / (1 + seen.mean)
