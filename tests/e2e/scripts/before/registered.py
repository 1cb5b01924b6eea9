"""Buffers that no state_dict has, registered in forward and between steps, and changed from then
on: the first in the first step, others while training."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = kit.network()

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "calls"):
            self.register_buffer("calls", torch.zeros(()), persistent=False)
        if job.steps >= 14 and not hasattr(self, "late"):
            self.register_buffer("late", torch.zeros(()), persistent=False)
        self.calls += 1
        found: Tensor = self.net(x) * (1 + 0.01 * self.calls)
        for name in ("late", "between"):
            if hasattr(self, name):
                setattr(self, name, getattr(self, name) + x.mean().detach())
                found = found + getattr(self, name)
        return found


counting = Counting()
model = kit.replicated(job, counting)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    loss = kit.error(model, x, y)
    kit.pace(job, args)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    if job.steps == 13:
        counting.register_buffer("between", torch.zeros(()), persistent=False)
    train_step(x, y)
