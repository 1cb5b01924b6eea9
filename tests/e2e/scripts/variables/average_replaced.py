"""An average that never changes: each step makes another object, with a private field."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Average:
    def __init__(self, value: float = 1.0) -> None:
        self._value = value

    def plus(self, x: float) -> "Average":
        return Average(0.9 * self._value + 0.1 * x)

    def rate(self) -> float:
        return 1e-2 * self._value


average = Average()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    optimizer.param_groups[0]["lr"] = average.rate()
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    average = average.plus(train_step(x, y).item())
