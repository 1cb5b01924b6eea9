"""What stands behind a step is left out where that has raised, behind its update."""

from contextlib import suppress

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)


class Uneven(Exception):
    pass


@job.step
def train_step(x: Tensor, y: Tensor, credit: float) -> None:
    kit.pace(job, args)
    each = (model(x) - y).square()
    loss = each.mean() * (0.5 + credit)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    if each[:4].mean().item() > 0.5 * each[4:].mean().item():
        raise Uneven


credit = 0.5
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    credit *= 0.97
    with suppress(Uneven):
        train_step(x, y, credit)
        credit += 0.05
    kit.moment(job, args)
