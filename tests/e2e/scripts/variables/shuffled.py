"""A trainer shuffles a list of its own in each step, and keeps the hardest samples in a heap."""

import heapq
import random

import kit
import torch
from torch import Tensor

job, args = kit.begin()
random.seed(3)


class Trainer:
    def __init__(self) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.order, self.hardest = list(range(64)), list[tuple[float, int]]()
        self.x, self.y = kit.dataset(64, seed=4).tensors
        job.track(model=self.model, optimizer=self.optimizer)
        self.train_step = job.step(self.make)

    def make(self, x: Tensor, y: Tensor) -> Tensor:
        kit.pace(job, args)
        again = self.order[:4] + [number for _, number in heapq.nsmallest(2, self.hardest)]
        loss = kit.error(self.model, torch.cat([x, self.x[again]]), torch.cat([y, self.y[again]]))
        self.optimizer.zero_grad()
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        return loss.detach()

    def run(self) -> None:
        for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
            random.shuffle(self.order)
            loss = self.train_step(x, y)
            heapq.heappush(self.hardest, (-loss.item(), self.order[0]))


Trainer().run()
