"""After the warm-up errors below a margin count no more; the margin is drawn when it is needed."""

import functools

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Margin:
    def __init__(self, spread: float) -> None:
        self.spread = spread

    @functools.cached_property
    def width(self) -> float:
        return 0.1 + self.spread * torch.rand(()).item()


class Insensitive:
    def __init__(self, warm_up: int, spread: float) -> None:
        self.warm_up, self.margin = warm_up, Margin(spread)

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        errors = (output - y).abs()
        if job.steps >= self.warm_up:
            errors = (errors - self.margin.width).clamp(min=0.0)
        return errors.square().mean()


class Trainer:
    def __init__(self) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.criterion = Insensitive(warm_up=9, spread=0.8)
        job.track(model=self.model, optimizer=self.optimizer)

    @job.step
    def step(self, x: Tensor, y: Tensor) -> Tensor:
        kit.pace(job, args)
        loss = self.criterion(self.model(x), y)
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def fit(self) -> None:
        for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
            self.step(x, y)
        kit.say(job, f"margin {self.criterion.margin.width:.9g}")


Trainer().fit()
