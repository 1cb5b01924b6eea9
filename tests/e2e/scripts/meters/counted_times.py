"""How many times were measured so far decides what a step does."""

import time

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Timer:
    def __init__(self) -> None:
        self.times: list[float] = []
        self.last = time.perf_counter()

    def tick(self) -> None:
        now = time.perf_counter()
        self.times.append(now - self.last)
        self.last = now

    def mean(self) -> float:
        return sum(self.times) / max(1, len(self.times))


timer = Timer()


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    timer.tick()
    loss = kit.error(model, x, y)
    if len(timer.times) % 3 == 0:
        loss = loss + 0.1 * model(x).square().mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
