"""Each pass goes over the examples that are the hardest at the moment."""

import kit
import torch
from torch import Tensor
from torch.utils.data import Subset

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False, dropout=0.0))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
data = kit.dataset()


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


@torch.no_grad()
def hardest(count: int) -> list[int]:
    x, y = data.tensors
    errors = (model(x) - y).abs().squeeze(1)
    places: list[int] = errors.topk(count).indices.tolist()
    return places


chosen = list(range(48))
while job.steps < args.steps:
    loader = kit.loader(job, Subset(data, chosen))
    for x, y in kit.until(job, args, job.batches(loader)):
        train_step(x, y)
    chosen = hardest(48)
