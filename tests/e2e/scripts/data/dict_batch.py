"""A batch is a dict of its own class, with weights of its samples as an attribute; a step tempers
these in place.
"""

from typing import Any

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Batch(dict[str, Tensor]):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__(x=x, y=y)
        self.weights = x.abs().mean(1, keepdim=True)

    @classmethod
    def collate(cls, rows: list[Any]) -> "Batch":
        return cls(torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows]))


class Trainer:
    def __init__(self) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        job.track(model=self.model, optimizer=self.optimizer)

    @job.step
    def step(self, batch: Batch) -> Tensor:
        kit.pace(job, args)
        batch.weights.mul_(batch["x"].square().mean(1, keepdim=True))
        loss = (batch.weights * (self.model(batch["x"]) - batch["y"]).square()).mean()
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def fit(self) -> None:
        loader, loss = kit.loader(job, collate_fn=Batch.collate), torch.zeros(())
        for batch in kit.until(job, args, job.batches(loader, passes=None)):
            loss = self.step(batch)
        kit.say(job, f"loss {loss.item():.9g}")


Trainer().fit()
