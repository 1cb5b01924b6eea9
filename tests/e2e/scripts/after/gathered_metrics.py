"""Every rank's loss is gathered after the update, and the worst one rules the rate."""

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
    optimizer.step()
    optimizer.zero_grad()
    losses = [torch.zeros(()) for _ in range(job.world_size)]
    dist.all_gather(losses, loss.detach())
    worst = max(losses)
    optimizer.param_groups[0]["lr"] = 1e-2 / (1 + worst.item())
    return worst


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
