"""Eighty units have a generator each, which begins anew with every step."""

from collections.abc import Iterator

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
UNITS = 80


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(kit.WIDTH, UNITS), nn.Linear(UNITS, 1)

    def forward(self, x: Tensor, gates: Tensor) -> Tensor:
        out: Tensor = self.last(torch.relu(self.first(x)) * gates)
        return out


def fading(rate: float) -> Iterator[float]:
    gate = 1.0
    while True:
        yield gate
        gate *= rate


def all_units() -> list[Iterator[float]]:
    return [fading(0.5 + 0.005 * unit) for unit in range(UNITS)]


model = kit.replicated(job, Gated())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
streams = all_units()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    total = torch.zeros(())
    for part, target in zip(x.chunk(4), y.chunk(4), strict=True):
        gates = torch.tensor([next(stream) for stream in streams])
        loss = (model(part, gates) - target).square().mean() / 4
        loss.backward()
        total += loss.detach()
    job.report(loss=total)
    optimizer.step()
    optimizer.zero_grad()
    streams[:] = all_units()
    return total


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    kit.moment(job, args)
