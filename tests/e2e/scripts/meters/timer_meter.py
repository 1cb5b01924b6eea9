"""A timer and a meter both call `total` what they sum up; the meter's sets the rate."""

import time

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)


class Timer:
    def __init__(self) -> None:
        self.total, self.start = 0.0, time.perf_counter()

    def lap(self) -> None:
        self.total += time.perf_counter() - self.start
        self.start = time.perf_counter()


class Meter:
    def __init__(self) -> None:
        self.total = 0.0

    def add(self, value: float) -> None:
        self.total += value


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


timer, meter = Timer(), Meter()
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    timer.lap()
    meter.add(loss.item())
    optimizer.param_groups[0]["lr"] = 0.05 / (1 + meter.total)
