"""A function makes the step, which keeps a window of losses; the loop ages them."""

from collections.abc import Callable

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)

Window = list[tuple[float, float]]


def make_step(window: Window) -> Callable[[Tensor, Tensor], None]:
    def one(x: Tensor, y: Tensor) -> None:
        kit.pace(job, args)
        mean = sum(value for value, _ in window) / sum(share for _, share in window)
        loss = kit.error(model, x, y) / (0.5 + mean)
        loss.backward()
        job.report(loss=loss)
        window.append((loss.item(), 1.0))
        del window[:-8]
        optimizer.step()
        optimizer.zero_grad()

    return one


window: Window = [(1.0, 1.0)]
train_step = job.step(make_step(window))

for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    window[:] = [(0.9 * value, 0.9 * share) for value, share in window]
    kit.moment(job, args)
