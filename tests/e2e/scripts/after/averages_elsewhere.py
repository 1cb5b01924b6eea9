"""Averages lie in a list for each rate, and a function of another file updates them, one by one."""

import kit
import torch
from moving.averages import advance
from torch import Tensor

job, args = kit.begin()


class Trainer:
    def __init__(self) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)
        self.kept = [[one.detach().clone() for one in self.model.parameters()] for _ in range(2)]
        job.track(model=self.model, optimizer=self.optimizer)

    @job.step
    def step(self, x: Tensor, y: Tensor) -> None:
        kit.pace(job, args)
        params = list(self.model.parameters())
        pairs = zip(params, self.kept[0], strict=True)
        far = sum((one - mean).square().sum() for one, mean in pairs)
        loss = kit.error(self.model, x, y) + 0.1 * far
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        advance(self.kept[0], params, 0.9)
        advance(self.kept[1], params, 0.99)


trainer = Trainer()
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    trainer.step(x, y)
