"""A counter in a closure."""

from collections.abc import Callable

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


def warm_up() -> Callable[[], float]:
    calls = 0

    def rate() -> float:
        nonlocal calls
        calls += 1
        return 1e-2 * min(1.0, calls / 20)

    return rate


rate = warm_up()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    optimizer.param_groups[0]["lr"] = rate()
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
