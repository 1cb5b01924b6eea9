"""Ranks have batches of different sizes; behind each step they count the samples of all, by which
the next loss is divided."""

import kit
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Subset

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
size = 8 if job.rank == 0 else 4
part = Subset(kit.dataset(), range(160) if job.rank == 0 else range(160, 240))
loader = DataLoader(part, size, shuffle=True)
total = torch.tensor(float(size * job.world_size))


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = (model(x) - y).square().sum() * job.world_size / total
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(loader, passes=None)):
    train_step(x, y)
    total = torch.tensor(float(len(x)))
    dist.all_reduce(total)
    kit.moment(job, args)
kit.say(job, f"{total.item()} samples, weights {sum(p.double().sum() for p in model.parameters())}")
