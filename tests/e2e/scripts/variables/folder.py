"""Each phase goes into a folder of its own, and a step asks which one it is in."""

import os
from pathlib import Path

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)
PHASES = Path(__file__).resolve().parents[1]
RATES = {"loops": 0.5, "data": 0.25}


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y) * RATES[Path.cwd().name]
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


os.chdir(PHASES / "loops")
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    if job.steps == 4:
        os.chdir(PHASES / "data")
