"""The time that steps take is measured, averaged, and not printed."""

import time

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


began = last = time.perf_counter()
per_step = 0.0
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    now = time.perf_counter()
    per_step, last = 0.9 * per_step + 0.1 * (now - last), now
    kit.say(job, f"step {job.steps} loss {loss.item():.9g}")
assert time.perf_counter() - began > 0
