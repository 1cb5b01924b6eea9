"""Labelled and unlabelled data side by side, with zip; passes of different length."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor, free: Tensor) -> Tensor:
    kit.pace(job, args)
    noisy = free + 0.1 * torch.randn_like(free)
    loss = kit.error(model, x, y) + 0.1 * (model.module(noisy) - model.module(free)).square().mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


labelled = job.batches(kit.loader(job, kit.dataset(96)), passes=None)
unlabelled = job.batches(kit.loader(job, kit.dataset(160, seed=6)), passes=None)
for (x, y), (free, _) in kit.until(job, args, zip(labelled, unlabelled, strict=True)):
    train_step(x, y, free)
