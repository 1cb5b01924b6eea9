"""A timer has `sum()`, and what the losses are divided by is made of `losses.sum()`."""

import time

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Timer:
    def __init__(self) -> None:
        self.times: list[float] = []
        self.start()

    def start(self) -> None:
        self.began = time.time()

    def stop(self) -> None:
        self.times.append(time.time() - self.began)

    def sum(self) -> float:
        return sum(self.times)


class Level:
    def __init__(self) -> None:
        self.level = 1.0

    def __call__(self, losses: Tensor) -> Tensor:
        self.level = 0.9 * self.level + 0.1 * losses.sum().item()
        return losses / (0.1 + self.level)


model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
weighted, timer = Level(), Timer()


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    losses = (model(x) - y).square()
    loss = (losses * weighted(losses.detach())).mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    timer.start()
    train_step(x, y)
    timer.stop()
