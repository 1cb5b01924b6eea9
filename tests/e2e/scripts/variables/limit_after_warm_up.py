"""After the warm-up errors are cut at a limit, which is worked out once, from the mean loss until
then.
"""

import functools

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

WARM = 3


class Meter:
    def __init__(self) -> None:
        self.total, self.many = 0.0, 0

    def note(self, value: float) -> None:
        self.total += value
        self.many += 1

    def average(self) -> float:
        return self.total / max(1, self.many)


class Cut:
    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    @functools.cached_property
    def limit(self) -> float:
        return 0.8 * self.meter.average()


meter = Meter()
cut = Cut(meter)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    errors = (model(x) - y).square()
    if job.steps >= WARM:
        errors = errors.clamp(max=cut.limit)
    loss = errors.mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    meter.note(loss.item())
    kit.moment(job, args)
kit.say(job, f"limit {cut.limit:.9g}")
