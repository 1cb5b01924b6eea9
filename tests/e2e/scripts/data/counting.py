"""What puts samples together counts how often it did, and changes them by that."""

from typing import Any

import kit
import torch
from torch import Tensor
from torch.utils.data import default_collate

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)


class Collate:
    def __init__(self) -> None:
        self.batches = 0

    def __call__(self, samples: list[Any]) -> Any:
        self.batches += 1
        x, y = default_collate(samples)
        return x * (1 + 0.01 * self.batches), y


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job, collate_fn=Collate()), passes=None)):
    train_step(x, y)
