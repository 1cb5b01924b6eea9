"""A helper gives each step's loss and its seconds; a running mean of the losses scales the next."""

import time
from collections.abc import Callable
from typing import Any

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
    loss = kit.error(model, x, y) / scale
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def timed(function: Callable[..., Any], *inputs: Any) -> tuple[Any, float]:
    begun = time.perf_counter()
    output = function(*inputs)
    return output, time.perf_counter() - begun


mean, total = 1.0, 0.0
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss, seconds = timed(train_step, x, y, mean)
    mean = 0.9 * mean + 0.1 * (loss.item() * mean + 0.5)
    total += seconds
kit.say(job, f"mean {mean:.9g}, {'some' if total else 'no'} seconds")
