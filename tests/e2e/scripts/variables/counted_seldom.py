"""Beside what every step counts, the step counts what follows from its rank's own data."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)
counts = {"steps": 0}


def note(seen: dict[str, int], loss: Tensor) -> None:
    seen["hard"] = seen.get("hard", 0) + (loss.item() > 0.5)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    optimizer.zero_grad()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    counts["steps"] += 1
    note(counts, loss)


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    if counts["steps"] % 5 == 0:
        kit.say(job, f"{counts}")
