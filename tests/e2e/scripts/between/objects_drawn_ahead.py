"""Objects are exchanged between steps, and the next batch is drawn before each step."""

from typing import Any

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


batches = job.batches(kit.loader(job), passes=None)
x, y = next(batches)
while job.steps < args.steps:
    following = next(batches)
    loss = train_step(x, y)
    x, y = following
    kit.moment(job, args)
    found: list[Any] = [None] * job.world_size
    dist.all_gather_object(found, {"rank": job.rank, "loss": loss.item()})
    word: list[Any] = [None, None]
    if job.rank == 1:
        word = [{"factor": 1 / (1 + loss.item())}, "as rank 1 says " * 20]
    dist.broadcast_object_list(word, src=1)
    worst = max(one["loss"] for one in found)
    optimizer.param_groups[0]["lr"] = 1e-2 * word[0]["factor"] / (1 + worst)
    kit.say(job, f"step {job.steps} {worst:.9g} {word[1][:14]} {word[0]['factor']:.9g}")
