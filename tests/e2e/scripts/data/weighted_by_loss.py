"""A weighted sampler whose weights follow the losses."""

import kit
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
data = TensorDataset(torch.arange(120), *(one[:120] for one in kit.dataset().tensors))
chance = torch.Generator().manual_seed(5 + job.rank)
sampler = WeightedRandomSampler(torch.ones(120), 80, generator=chance)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    losses = (model(x) - y).square().mean(1)
    loss = losses.mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return losses.detach()


for number, x, y in kit.until(
    job, args, job.batches(DataLoader(data, 8, sampler=sampler), passes=None)
):
    sampler.weights[number] = train_step(x, y).double()
