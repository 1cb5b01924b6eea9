"""The rule by which errors count is made anew every second step: a lambda with a level."""

from collections.abc import Callable

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Rule:
    def __init__(self, shape: Callable[[Tensor], Tensor]) -> None:
        self.shape = shape

    def __call__(self, errors: Tensor) -> Tensor:
        return self.shape(errors).mean()


class Trainer:
    def __init__(self) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.rule, self.level = Rule(torch.square), 1.0
        job.track(model=self.model, optimizer=self.optimizer)

    @job.step
    def step(self, x: Tensor, y: Tensor) -> Tensor:
        kit.pace(job, args)
        loss = self.rule(self.model(x) - y)
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def fit(self) -> None:
        for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
            loss = self.step(x, y)
            self.level = 0.8 * self.level + 0.2 * loss.item()
            if job.steps % 2 == 0:
                self.rule = Rule(lambda e, s=self.level: e.square() / (0.5 + s) + 0.1 * e.abs())
        kit.say(job, f"level {self.level:.9g}")


Trainer().fit()
