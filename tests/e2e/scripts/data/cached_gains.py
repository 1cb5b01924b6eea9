"""Each sample has a gain of its own, which is drawn when it is first loaded and then remembered."""

import functools
import random

import kit
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

job, args = kit.begin()
random.seed(17 + job.rank)


@functools.cache
def gain_of(index: int) -> float:
    return random.uniform(0.5, 1.5)


class Gained(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, data: TensorDataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = self.data[index]
        return x * gain_of(index), y


class Trainer:
    def __init__(self) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.loader = kit.loader(job, Gained(kit.dataset()))
        job.track(model=self.model, optimizer=self.optimizer)

    @job.step
    def step(self, x: Tensor, y: Tensor) -> Tensor:
        kit.pace(job, args)
        loss = kit.error(self.model, x, y)
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def fit(self) -> None:
        for x, y in kit.until(job, args, job.batches(self.loader, passes=None)):
            self.step(x, y)
        seen = [gain_of(index) for index in range(len(self.loader.dataset))]
        kit.say(job, f"mean gain {sum(seen) / len(seen):.9g}, of sample 7: {seen[7]:.9g}")


Trainer().fit()
