"""A library counts the steps: in every second gradients are exchanged. The count is kept."""

import sys
from pathlib import Path

import kit
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).with_name("site-packages")))

from toy_accumulation import Accumulator

job, args = kit.begin()
model = nn.parallel.DistributedDataParallel(kit.network(norm=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
accumulator = Accumulator(2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    with accumulator.accumulate(model):
        loss = kit.error(model, x, y)
        loss.backward()
    job.report(loss=loss)
    if accumulator.updates:
        optimizer.step()
        optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
