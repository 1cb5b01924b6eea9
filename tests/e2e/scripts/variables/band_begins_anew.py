"""A band of errors that count is moved with the losses: it is set up anew where it lies."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Band:
    def __init__(self, low: float, high: float) -> None:
        self.edges = (low, high)

    def move(self, middle: float) -> None:
        self.__init__(0.3 * middle, 1.5 * middle)  # type: ignore[misc]

    def __call__(self, errors: Tensor) -> Tensor:
        low, high = self.edges
        return errors.abs().clamp(min=low).square().clamp(max=high**2 + 4.0) + low * errors.abs()


class Trainer:
    def __init__(self) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.band, self.level = Band(0.1, 1.0), 1.0
        job.track(model=self.model, optimizer=self.optimizer)

    @job.step
    def step(self, x: Tensor, y: Tensor) -> Tensor:
        kit.pace(job, args)
        loss = self.band(self.model(x) - y).mean()
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def fit(self) -> None:
        for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
            loss = self.step(x, y)
            self.level = 0.9 * self.level + 0.1 * loss.item()
            if job.steps % 3 == 0:
                self.band.move(self.level)
        kit.say(job, f"level {self.level:.9g}, band {self.band.edges}")


Trainer().fit()
