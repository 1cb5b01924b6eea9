"""A metric of a library that steps update, and nobody tracks: the rate follows from it."""

import sys
from pathlib import Path

import kit
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).with_name("site-packages")))

from toy_metrics import Mean

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
training, evaluation = Mean(), Mean()
job.track(model=model, optimizer=optimizer)
held_x, held_y = kit.dataset(64, seed=8).tensors


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    training.update(loss)
    optimizer.step()
    optimizer.zero_grad()


best = float("inf")
while job.steps < args.steps:
    for x, y in kit.until(job, args, job.batches(kit.loader(job, kit.dataset(96)))):
        train_step(x, y)
    evaluation.reset()
    with torch.no_grad():
        evaluation.update(kit.error(model, held_x, held_y))
    best = min(best, evaluation.compute().item())
    mean = training.compute().item()
    if job.steps % 12 == 0:
        training.reset()
    optimizer.param_groups[0]["lr"] = 1e-2 * best / (best + mean)
    kit.say(job, f"{job.steps} {best:.9g} {mean:.9g} {evaluation.total.item():.9g}")
