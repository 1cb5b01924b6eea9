"""A MetricLogger makes a meter for each name as it comes; the rate follows from one of them."""

from collections import defaultdict, deque

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class SmoothedValue:
    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=20)
        self.total, self.count = 0.0, 0

    def update(self, value: float) -> None:
        self.recent.append(value)
        self.total += value
        self.count += 1

    @property
    def mean(self) -> float:
        return self.total / max(self.count, 1)


class MetricLogger:
    def __init__(self) -> None:
        self.meters: defaultdict[str, SmoothedValue] = defaultdict(SmoothedValue)

    def update(self, **values: float) -> None:
        for name, value in values.items():
            self.meters[name].update(value)


model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
logger = MetricLogger()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    optimizer.param_groups[0]["lr"] = 1e-2 / (1 + logger.meters["loss"].mean)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    logger.update(loss=train_step(x, y).item())
