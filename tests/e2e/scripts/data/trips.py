"""A column of the data is called elapsed_time; what the loop makes of it is no clock."""

from collections.abc import Sequence
from typing import NamedTuple

import kit
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
inputs, targets = kit.dataset().tensors
data = TensorDataset(inputs, targets, 1 + inputs.square().sum(1, keepdim=True))


class Trips(NamedTuple):
    x: Tensor
    y: Tensor
    elapsed_time: Tensor


def collate(rows: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Trips:
    return Trips(*map(torch.stack, zip(*rows, strict=True)))


@job.step
def train_step(trips: Trips) -> Tensor:
    kit.pace(job, args)
    weights = usual / (usual + trips.elapsed_time)
    loss = (weights * (model(trips.x) - trips.y).square()).mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


usual = 1.0
loader = kit.loader(job, data, collate_fn=collate)
for trips in kit.until(job, args, job.batches(loader, passes=None)):
    train_step(trips)
    usual = 0.9 * usual + 0.1 * trips.elapsed_time.mean().item()
kit.say(job, f"usually {usual:.9g}")
