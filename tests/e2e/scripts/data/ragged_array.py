"""Beside its inputs each sample has a series of its own length; those of a batch come in an array
of arrays, and a step takes half of its mean off each.
"""

from typing import Any

import kit
import numpy as np
import torch
from torch import Tensor

job, args = kit.begin()


def collate(rows: list[Any]) -> tuple[Tensor, Tensor, Any]:
    series = np.empty(len(rows), dtype=object)
    for number, (x, _) in enumerate(rows):
        series[number] = np.array(x[: 3 + number % 4].tolist())
    return torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows]), series


class Trainer:
    def __init__(self) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        job.track(model=self.model, optimizer=self.optimizer)

    @job.step
    def step(self, x: Tensor, y: Tensor, series: Any) -> Tensor:
        kit.pace(job, args)
        for one in series:
            one -= 0.5 * one.mean()
        ends = torch.tensor([[one[-1]] for one in series], dtype=torch.float32)
        loss = ((1 + ends.abs()) * (self.model(x) - y).square()).mean()
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def fit(self) -> None:
        loader, loss = kit.loader(job, collate_fn=collate), torch.zeros(())
        for x, y, series in kit.until(job, args, job.batches(loader, passes=None)):
            loss = self.step(x, y, series)
        kit.say(job, f"loss {loss.item():.9g}")


Trainer().fit()
