"""A group is made every seventh step, and used in the steps that follow."""

import kit
import torch
import torch.distributed as dist
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    total = loss.detach().clone()
    dist.all_reduce(total, group=group)
    optimizer.param_groups[0]["lr"] = 1e-2 / (1 + total.item())
    optimizer.step()
    optimizer.zero_grad()
    return total


group = None
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y, group)
    if job.steps % 7 == 0:
        kit.moment(job, args)
        group = dist.new_group([0, 1])
