"""A weighted sampler whose weights are the losses of an evaluation after each pass."""

import kit
import torch
from torch import Tensor
from torch.utils.data import DataLoader, WeightedRandomSampler

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
data = kit.dataset()
chance = torch.Generator().manual_seed(5 + job.rank)
sampler = WeightedRandomSampler(torch.ones(240), 80, generator=chance)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def weights() -> Tensor:
    model.eval()
    x, y = data.tensors
    with torch.no_grad():
        errors = (model.module(x) - y).square().mean(1)
    model.train()
    return errors.double()


while job.steps < args.steps:
    for x, y in kit.until(job, args, job.batches(DataLoader(data, 8, sampler=sampler))):
        train_step(x, y)
    sampler.weights = weights()
