"""A rate follows from the loss, unless making it raises, as it does in two of three steps."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor, rate: float) -> Tensor:
    kit.pace(job, args)
    optimizer.param_groups[0]["lr"] = rate
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss, rate=rate)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def rate_of(value: float) -> float:
    if job.steps % 3:
        raise ValueError("not now")
    return 1e-2 / (1 + value)


def main() -> None:
    rate = 1e-2
    for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
        mean = x.mean().item()
        try:
            rate = rate_of(mean)
        except ValueError:
            mean = 0.0
        train_step(x, y, rate + mean / 1000)


main()
