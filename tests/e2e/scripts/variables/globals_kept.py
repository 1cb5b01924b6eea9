"""Globals of the script, which job.values keeps by its module; the rate follows from them."""

import sys

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=5e-2)
best = float("inf")
seen: dict[int, float] = {}
job.track(model=model, optimizer=optimizer)
job.values(sys.modules[__name__], "best", "seen")


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    optimizer.param_groups[0]["lr"] = 5e-2 / (1 + len(seen))
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    best = min(best, train_step(x, y).item())
    seen[job.steps] = best
    kit.say(job, f"step {job.steps} best {best:.9g}")
