"""Early stopping: ranks wait in a step until all have agreed how many more rounds to make."""

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
    rounds = agreed = torch.zeros(())
    while agreed < job.world_size:
        rounds = rounds + 1
        agreed = (rounds >= torch.randint(1, 4, ())).float()
        dist.all_reduce(agreed)
    loss = kit.error(model, x, y) * rounds
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
