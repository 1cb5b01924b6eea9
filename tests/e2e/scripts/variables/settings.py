"""The environment says how far the warm-up is."""

import os

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)
os.environ["WARM_STEPS"] = "0"


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    os.environ["WARM_STEPS"] = str(int(os.environ["WARM_STEPS"]) + 1)
    loss = kit.error(model, x, y) / (1 + int(os.environ["WARM_STEPS"]))
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
