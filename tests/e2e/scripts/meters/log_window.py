"""A loss counts by the mean of the last ones; how many these are says the environment."""

import os
import statistics
from collections import deque

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)

window: deque[float] = deque(maxlen=int(os.environ.get("LOG_WINDOW", "8")))


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    level = statistics.fmean(window) if window else 1.0
    loss = kit.error(model, x, y) / (0.5 + level)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    window.append(loss.item())
    kit.moment(job, args)
kit.say(job, f"mean of the last losses {statistics.fmean(window):.9g}")
