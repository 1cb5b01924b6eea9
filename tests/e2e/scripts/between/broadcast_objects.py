"""Rank 0 decides, and its word is broadcast as an object between steps."""

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


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    if job.steps % 3 == 0:
        kit.moment(job, args)
        word = [{"factor": 1 / (1 + loss.item()), "text": "as rank 0 says " * 20}]
        dist.broadcast_object_list(word)
        optimizer.param_groups[0]["lr"] = 1e-2 * word[0]["factor"]
        kit.say(job, f"step {job.steps} {word[0]['factor']:.9g}")
