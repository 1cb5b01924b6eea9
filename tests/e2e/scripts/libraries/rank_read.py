"""A library reads which rank it is as it is imported; what differs between ranks follows."""

import sys
from pathlib import Path

import kit
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).with_name("site-packages")))

import toy_rank

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x + 0.1 * toy_rank.rank(), y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
