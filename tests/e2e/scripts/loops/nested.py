"""A whole evaluation over a loader of its own, every eight steps, as steps.

What a comprehension has collected so far nobody can read: who is lost inside of it is not replaced
(`loops/collected`).
"""

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


@job.step
def evaluate(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    model.eval()
    with torch.no_grad():
        error = kit.mean(kit.error(model.module, x, y))
    model.train()
    return error


held_out = kit.loader(job, kit.dataset(48, seed=8))
for number in job.range(4):
    for x, y in kit.until(job, args, job.batches(kit.loader(job, kit.dataset(128)))):
        train_step(x, y)
    errors = [evaluate(x, y).item() for x, y in job.batches(held_out)]
    kit.say(job, f"pass {number} held out {errors[-1]:.9g}")
