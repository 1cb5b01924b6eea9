"""FSDP2, evaluated between two steps: what that has gathered lies there until the next one."""

import kit
import torch
from torch import Tensor
from torch.distributed.fsdp import fully_shard

job, args = kit.begin()

model = fully_shard(kit.network(norm=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
held_x = torch.randn(16, kit.WIDTH, generator=torch.Generator().manual_seed(8))


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    optimizer.zero_grad(set_to_none=False)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.99)
    optimizer.step()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    if job.steps % 2 == 0:
        kit.moment(job, args)
        with torch.no_grad():
            error = model(held_x).square().mean()
        kit.say(job, f"step {job.steps} held out {error.item():.9g}")
