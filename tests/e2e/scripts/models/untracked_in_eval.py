"""Inputs are dropped by an untracked layer, switched off until behind the update."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
corrupt = nn.Sequential(nn.Dropout(0.3), nn.Hardtanh(-2.0, 2.0))


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, corrupt(x), y)
    loss.backward()
    corrupt.eval()
    with torch.no_grad():
        clean = kit.error(model, corrupt(x), y)
    job.report(loss=loss, clean=clean)
    optimizer.step()
    optimizer.zero_grad()
    corrupt.train()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    kit.moment(job, args)
