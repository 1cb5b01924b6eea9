"""A progress bar of the script's own goes around the loader, and knows how far it is."""

from collections.abc import Iterable, Iterator
from typing import Any

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


def progress(batches: Iterable[Any]) -> Iterator[Any]:
    for done, batch in enumerate(batches, 1):
        yield batch
        if done % 10 == 0:
            kit.say(job, f"{done} batches")


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, progress(job.batches(kit.loader(job), passes=None))):
    train_step(x, y)
