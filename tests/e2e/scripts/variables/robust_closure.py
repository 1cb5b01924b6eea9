"""A robust loss whose edge follows the errors once it is warm, in a closure."""

from collections.abc import Callable

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)

WARM = 4


def robust(start: float) -> tuple[Callable[[Tensor, Tensor], Tensor], dict[str, float]]:
    known = {"delta": start}

    def measure(out: Tensor, wanted: Tensor) -> Tensor:
        if job.steps >= WARM:
            middle = (out - wanted).detach().abs().median().item()
            known["delta"] = 0.8 * known["delta"] + 0.2 * middle
        return torch.nn.functional.huber_loss(out, wanted, delta=known["delta"])

    return measure, known


criterion, edge = robust(2.0)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = criterion(model(x), y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    edge["delta"] *= 0.98
    kit.moment(job, args)
