"""A function of torch's is replaced by one around it that keeps a mean."""

from collections.abc import Callable

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


def scaled(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    mean = 0.0

    def inner(x: Tensor) -> Tensor:
        nonlocal mean
        mean = 0.9 * mean + 0.1 * x.mean().item()
        return function(x) * (1 + mean)

    return inner


nn.functional.softsign = scaled(nn.functional.softsign)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = (nn.functional.softsign(model(x)) - y).square().mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
