"""What a loop knows of itself is a frozen object, made anew in each step, with the time in it."""

import time
from dataclasses import dataclass, replace

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@dataclass(frozen=True)
class State:
    mean: float = 1.0
    at: float = 0.0


@job.step
def train_step(x: Tensor, y: Tensor, scale: float) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y) * scale
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


state = State()
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y, state.mean)
    state = replace(state, mean=0.9 * state.mean + 0.1 * loss.item(), at=time.time())
