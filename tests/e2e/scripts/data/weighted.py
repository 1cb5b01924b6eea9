"""A weighted sampler with a generator of its own."""

import kit
import torch
from torch import Tensor
from torch.utils.data import DataLoader, WeightedRandomSampler

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
chance = torch.Generator().manual_seed(5 + job.rank)
sampler = WeightedRandomSampler(torch.rand(240).tolist(), 120, generator=chance)
loader = DataLoader(kit.dataset(), 8, sampler=sampler)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(loader, passes=None)):
    train_step(x, y)
