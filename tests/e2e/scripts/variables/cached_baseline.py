"""What the model comes to as a period begins is computed once, and kept by functools.lru_cache."""

from functools import lru_cache

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
held_x, held_y = kit.dataset(16, 9).tensors


@lru_cache(maxsize=8)
def baseline(period: int) -> float:
    with torch.no_grad():
        return kit.error(model.module.eval(), held_x, held_y).item()


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    scale = baseline(job.steps // 4)
    model.train()
    loss = kit.error(model, x, y)
    (loss / (0.1 + scale)).backward()
    job.report(loss=loss, scale=scale)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
