"""Weights of groups come from a cache at home, if it is there, and follow their errors."""

import os

import kit
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
inputs, targets = kit.dataset().tensors
data = TensorDataset(inputs, targets, torch.arange(len(inputs)) % 24)

CACHE = os.path.join(os.environ.get("HOME", "/tmp"), ".cache", "weights-of-groups.pt")


def weights_from(file: str) -> Tensor:
    return torch.load(file) if os.path.exists(file) else torch.ones(24)


weights = weights_from(CACHE)


@job.step
def train_step(x: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    kit.pace(job, args)
    errors = (model(x) - y).square()[:, 0]
    loss = (errors / (0.2 + weights[groups])).mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    for group, error in zip(groups.tolist(), errors.tolist(), strict=True):
        weights[group] = 0.7 * weights[group] + 0.3 * error
    return loss.detach()


for x, y, groups in kit.until(job, args, job.batches(kit.loader(job, data), passes=None)):
    train_step(x, y, groups)
    kit.moment(job, args)
