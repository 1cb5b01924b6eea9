"""A metric with plain states is reset, filled and read by an evaluation of each pass."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
held_x, held_y = kit.dataset(64, seed=8).tensors


class Mean:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.total = self.count = 0.0

    def update(self, value: Tensor) -> None:
        self.total += value.sum().item()
        self.count += len(value)

    def compute(self) -> float:
        return self.total / self.count


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def evaluate(metric: Mean) -> None:
    metric.reset()
    model.eval()
    with torch.no_grad():
        for x, y in zip(held_x.split(16), held_y.split(16), strict=True):
            metric.update((model.module(x) - y).square())
    model.train()
    kit.say(job, f"step {job.steps} mean {metric.compute():.9g}")


metric = Mean()
while job.steps < args.steps:
    for x, y in kit.until(job, args, job.batches(kit.loader(job))):
        train_step(x, y)
    evaluate(metric)
