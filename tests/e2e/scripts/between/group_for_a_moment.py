"""A group is made for every evaluation, used once between steps, and destroyed."""

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
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def validate(loss: Tensor) -> float:
    group = dist.new_group()
    dist.all_reduce(loss, group=group)
    dist.destroy_process_group(group)
    return loss.item()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    if job.steps % 6 == 0:
        kit.moment(job, args)
        kit.say(job, f"step {job.steps} total {validate(loss):.9g}")
