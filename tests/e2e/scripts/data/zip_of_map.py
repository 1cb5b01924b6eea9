"""Temperatures and batches come side by side; a temperature is mapped from a meter that is kept."""

from itertools import repeat

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Meter:
    level = 3.0


def temperature(meter: Meter) -> float:
    return 0.5 + meter.level


meter = Meter()


@job.step
def train_step(x: Tensor, y: Tensor, tau: float) -> Tensor:
    kit.pace(job, args)
    errors = (model(x) - y) / tau
    loss = (tau * errors.square().clamp(max=4.0)).mean()
    loss.backward()
    job.report(loss=loss, tau=tau)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


batches = job.batches(kit.loader(job), passes=None)
pairs = zip(map(temperature, repeat(meter)), batches, strict=False)
for tau, (x, y) in kit.until(job, args, pairs):
    loss = train_step(x, y, tau)
    meter.level = 0.7 * meter.level + 0.3 * loss.item()
kit.say(job, f"level {meter.level:.9g}")
