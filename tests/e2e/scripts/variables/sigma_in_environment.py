"""The log of the error's sigma is learned by a running mean; it lies in the environment."""

import math
import os

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)

os.environ["LOG_SIGMA"] = "0.0"


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    sigma = math.exp(float(os.environ["LOG_SIGMA"]))
    loss = kit.error(model, x, y) / (0.5 + sigma)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    log_sigma = 0.5 * math.log(loss.item() + 1e-6)
    known = float(os.environ["LOG_SIGMA"])
    os.environ["LOG_SIGMA"] = repr(0.8 * known + 0.2 * log_sigma)
    kit.moment(job, args)
