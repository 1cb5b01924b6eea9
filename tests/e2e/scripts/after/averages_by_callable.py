"""Averages lie in a list for each rate, and an object that the trainer is given moves them."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Advance:
    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, averages: list[Tensor], params: list[Tensor]) -> float:
        moved = 0.0
        for average, param in zip(averages, params, strict=True):
            before = average.sum().item()
            average.mul_(self.rate).add_(param.detach(), alpha=1 - self.rate)
            moved += average.sum().item() - before
        return moved


class Trainer:
    def __init__(self, model: nn.Module, advance: Advance) -> None:
        self.model, self.advance = model, advance
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)
        own = [one.detach().clone() for one in self.model.parameters()]
        self.kept = {"slow": {"own": [own]}}
        job.track(model=self.model, optimizer=self.optimizer)

    @job.step
    def step(self, x: Tensor, y: Tensor) -> None:
        kit.pace(job, args)
        params = list(self.model.parameters())
        pairs = zip(params, self.kept["slow"]["own"][0], strict=True)
        far = sum((one - mean).square().sum() for one, mean in pairs)
        loss = kit.error(self.model, x, y) + 0.1 * far
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        moved = self.advance(self.kept["slow"]["own"][0], params)
        assert moved == moved


trainer = Trainer(kit.replicated(job, kit.network()), Advance(0.9))
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    trainer.step(x, y)
