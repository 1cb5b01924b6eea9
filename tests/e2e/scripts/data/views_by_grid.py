"""Each batch is turned and shifted: which way, a grid of all ways says, one after the other."""

import kit
import numpy as np
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Views:
    def __init__(self, turns: int, shifts: int) -> None:
        self.grid = np.ndindex(turns, shifts)

    def __call__(self, x: Tensor) -> Tensor:
        turn, shift = next(self.grid)
        return (x if turn % 2 == 0 else x.flip(1)).roll(shift, 1)


views = Views(16, 4)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(views(x), y)
    kit.moment(job, args)
