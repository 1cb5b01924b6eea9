"""The passes of one update in one call, without synchronisation but for the last."""

from contextlib import nullcontext

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    total = torch.zeros(())
    for number, (part, target) in enumerate(zip(x.chunk(4), y.chunk(4), strict=True)):
        with nullcontext() if number == 3 else model.no_sync():
            loss = kit.error(model, part, target) / 4
            loss.backward()
        total += loss.detach()
    job.report(loss=total)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return total


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
