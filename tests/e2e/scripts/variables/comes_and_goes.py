"""Locked noise: a mask, drawn when it is first needed, dropped behind the update."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Locked:
    """Multiplies inputs by one mask, the same until it is unlocked."""

    def __init__(self, keep: float) -> None:
        self.keep = keep

    def __call__(self, x: Tensor) -> Tensor:
        if not hasattr(self, "mask"):
            chances = torch.full((1, x.shape[1]), self.keep)
            self.mask = torch.bernoulli(chances) / self.keep
        return x * self.mask

    def unlock(self) -> None:
        del self.mask


locked = Locked(keep=0.8)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    total = torch.zeros(())
    for part, target in zip(x.chunk(2), y.chunk(2), strict=True):
        loss = kit.error(model, locked(part), target) / 2
        loss.backward()
        total += loss.detach()
    job.report(loss=total)
    optimizer.step()
    optimizer.zero_grad()
    locked.unlock()
    return total


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    kit.moment(job, args)
