"""Sharpness-aware steps: an optimizer around another, whose momentum is in no state_dict."""

from typing import Any

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())


class Sharpness(torch.optim.Optimizer):
    def __init__(self, parameters: Any, **settings: float) -> None:
        super().__init__(parameters, settings)
        self.base = torch.optim.SGD(self.param_groups, **settings)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def climb(self) -> None:
        every = [p for group in self.param_groups for p in group["params"]]
        norm = torch.stack([p.grad.norm() for p in every]).norm()
        for p in every:
            self.state[p]["old"] = p.data.clone()
            p.add_(p.grad * 0.05 / (norm + 1e-12))
        self.zero_grad()

    @torch.no_grad()
    def descend(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old"]
        self.base.step()
        self.zero_grad()


optimizer = Sharpness(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.climb()
    kit.error(model, x, y).backward()
    optimizer.descend()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
