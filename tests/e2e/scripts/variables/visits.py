"""A record for each sample counts its visits within a step: each further view of it weighs less."""

from types import SimpleNamespace

import kit
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
data = TensorDataset(*kit.dataset().tensors, torch.arange(240))
records = [SimpleNamespace(visits=0) for _ in range(len(data))]


def weights_of(index: Tensor) -> Tensor:
    """And count the visit."""
    found = []
    for number in index.tolist():
        record = records[number]
        found.append(1.0 / (1 + record.visits))
        record.visits += 1
    return torch.tensor(found).unsqueeze(1)


@job.step
def train_step(x: Tensor, y: Tensor, index: Tensor) -> Tensor:
    kit.pace(job, args)
    total = torch.zeros(())
    for _ in range(2):
        weights = weights_of(index)
        view = x + 0.1 * torch.randn_like(x)
        loss = (weights * (model(view) - y).square()).mean()
        loss.backward()
        total += loss.detach()
    job.report(loss=total)
    optimizer.step()
    optimizer.zero_grad()
    for number in index.tolist():
        records[number].visits = 0
    return total


for x, y, index in kit.until(job, args, job.batches(kit.loader(job, data), passes=None)):
    train_step(x, y, index)
    kit.moment(job, args)
