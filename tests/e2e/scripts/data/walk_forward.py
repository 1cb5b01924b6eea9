"""A forecaster walks through the calendar; how fast, its loss says."""

import math
from datetime import date, timedelta

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Calendar:
    def __init__(self) -> None:
        self.day = date.fromisoformat("2026-01-02")

    def go(self, loss: float) -> None:
        self.day += timedelta(days=7) if loss < 1 else timedelta(days=3)

    def season(self) -> float:
        return math.sin(2 * math.pi * self.day.timetuple().tm_yday / 365)


model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
calendar = Calendar()


@job.step
def train_step(x: Tensor, y: Tensor) -> float:
    kit.pace(job, args)
    loss = kit.error(model, x + calendar.season(), y)
    loss.backward()
    average = kit.mean(loss.detach().clone()).item()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return average


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    calendar.go(train_step(x, y))
