"""The mean loss is read off the last line that was written, by a pattern."""

import re

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)

PATTERN = re.compile(r"mean (?P<mean>\S+)")
last = PATTERN.search("step 0 mean 1.0")


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y) / (0.5 + float(last["mean"]))
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    line = f"step {job.steps} mean {0.8 * float(last['mean']) + 0.2 * loss.item():.9g}"
    last = PATTERN.search(line)
    kit.moment(job, args)
