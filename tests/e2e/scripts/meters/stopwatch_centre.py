"""Inputs are centred by a running mean of them; a stopwatch has the mean time of a step."""

import time

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Stopwatch:
    def __init__(self) -> None:
        self.mean, self.began = 0.0, time.perf_counter()

    def lap(self) -> None:
        now = time.perf_counter()
        self.mean = 0.9 * self.mean + 0.1 * (now - self.began)
        self.began = now


class Centre:
    def __init__(self) -> None:
        self.mean = torch.zeros(kit.WIDTH)

    def __call__(self, x: Tensor) -> Tensor:
        return x - self.mean

    def update(self, x: Tensor) -> None:
        self.mean.mul_(0.9).add_(0.1 * x.mean(0))


stopwatch, centre = Stopwatch(), Centre()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(centre(x), y)
    centre.update(x)
    stopwatch.lap()
    kit.moment(job, args)
kit.say(job, f"centre {centre.mean.norm().item():.9g}")
