"""A decorator lets a method run in every third call only; the others find what it left."""

from collections.abc import Callable
from typing import Any

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Every:
    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, function: Callable[..., None]) -> Callable[..., None]:
        def now_and_then(*given: Any) -> None:
            if job.steps % self.number == 0:
                function(*given)

        return now_and_then


class Scale:
    level = 0.0

    @Every(3)
    def refresh(self, x: Tensor) -> None:
        self.level = x.mean().item()

    def use(self, x: Tensor) -> float:
        self.refresh(x)
        return self.level


scale = Scale()


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y) * (2 + scale.use(x))
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
