"""What each pass has come to is kept in lists and in a tensor; the rate and the weight of a penalty
follow from them."""

from collections import deque
from typing import Any

import kit
import numpy
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
held_x, held_y = kit.dataset(64, seed=8).tensors
history: dict[str, list[Any]] = {"error": [], "penalty": []}


@job.step
def train_step(x: Tensor, y: Tensor, penalty: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y) + (penalty * sum(p.square().sum() for p in model.parameters()))
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


def held_out() -> Any:
    model.eval()
    with torch.no_grad():
        halves = zip(held_x.split(32), held_y.split(32), strict=True)
        errors = [kit.error(model, x, y).item() for x, y in halves]
    model.train()
    return numpy.mean(errors)


def main() -> None:
    newest, penalty = {"error": deque[float](maxlen=2)}, torch.tensor(1e-4)
    while job.steps < args.steps:
        for x, y in kit.until(job, args, job.batches(kit.loader(job, kit.dataset(96)))):
            train_step(x, y, penalty)
        error = held_out()
        history["error"].append(error)
        newest["error"].append(error)
        penalty = torch.maximum(penalty, torch.tensor(error / 1000))
        history["penalty"].append(penalty.item())
        optimizer.param_groups[0]["lr"] = 1e-2 * max(newest["error"]) / max(history["error"])
        kit.say(job, f"{len(history['error'])} {error:.9g} {penalty:.9g}")
    kit.say(job, f"{history}")


main()
