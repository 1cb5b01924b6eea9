"""An update is left out where the loss of any rank is too large; all agree on it beforehand."""

import kit
import torch
import torch.distributed as dist
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    optimizer.zero_grad()
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    worst = loss.detach().clone()
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    if worst < 0.8:
        optimizer.step()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
