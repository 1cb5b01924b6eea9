"""From step 5 on a mask is drawn once a step, and let go behind the update."""

from types import SimpleNamespace

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
locked = SimpleNamespace()


def masked(x: Tensor) -> Tensor:
    if not hasattr(locked, "mask"):
        locked.mask = torch.rand(kit.WIDTH) > 0.1
    return x * locked.mask


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, masked(x) if job.steps > 4 else x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    if hasattr(locked, "mask"):
        del locked.mask


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    kit.moment(job, args)
