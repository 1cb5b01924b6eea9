"""Gradients are clipped by the median of the last norms, which a deque keeps."""

import statistics
from collections import deque

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
norms: deque[float] = deque(maxlen=10)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    limit = statistics.median(norms) if norms else 1.0
    norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
kit.say(job, f"norms {list(norms)}")
