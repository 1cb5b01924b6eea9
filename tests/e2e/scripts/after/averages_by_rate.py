"""A loop keeps averages of the parameters in a list for each rate, and a function updates them."""

import copy
from collections.abc import Iterable

import kit
import torch
from torch import Tensor

job, args = kit.begin()


def update_average(average: Iterable[Tensor], params: Iterable[Tensor], rate: float) -> None:
    for mean, param in zip(average, params, strict=True):
        mean.detach().mul_(rate).add_(param, alpha=1 - rate)


class TrainLoop:
    def __init__(self) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.params, self.rates = list(self.model.parameters()), (0.9, 0.99)
        self.averages = [copy.deepcopy(self.params) for _ in self.rates]
        job.track(model=self.model, optimizer=self.optimizer)

    def run(self) -> None:
        for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
            self.step(x, y)
        for average in self.averages:
            kit.say(job, f"{sum(float(one.abs().sum()) for one in average):.9g}")

    @job.step
    def step(self, x: Tensor, y: Tensor) -> None:
        kit.pace(job, args)
        loss = kit.error(self.model, x, y)
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        for rate, average in zip(self.rates, self.averages, strict=True):
            update_average(average, self.params, rate)


TrainLoop().run()
