"""A batch is a data class with a list and a dict beside tensors; the step works through them."""

from dataclasses import dataclass, field
from typing import Any

import kit
import torch
from torch import Tensor

job, args = kit.begin()


@dataclass
class Batch:
    x: Tensor
    y: Tensor
    order: list[int]
    notes: dict[str, float] = field(default_factory=lambda: {"scale": 1.0, "left_out": 0.0})

    @classmethod
    def collate(cls, rows: list[Any]) -> "Batch":
        x, y = torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])
        return cls(x, y, x.abs().sum(1).argsort().tolist())


class Trainer:
    def __init__(self) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        job.track(model=self.model, optimizer=self.optimizer)

    def leave_out(self, batch: Batch, many: int) -> None:
        for _ in range(many):
            largest = batch.order.pop()
            batch.notes["left_out"] += batch.x[largest].abs().sum().item()
        batch.notes["scale"] *= 1 + batch.notes["left_out"] / 100

    @job.step
    def step(self, batch: Batch) -> Tensor:
        kit.pace(job, args)
        self.leave_out(batch, 2)
        errors = (self.model(batch.x) - batch.y).square().flatten()
        loss = errors[batch.order].mean() * batch.notes["scale"]
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
