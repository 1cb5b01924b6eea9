"""Rank 0 writes the weights to a file between steps, and lines to a log."""

import csv
from pathlib import Path

import kit
import torch
import torch.distributed as dist
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
folder = Path(args.orders)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    if job.rank == 0 and not job.is_shadow and args.orders:
        with (folder / "log.csv").open("a") as log:
            csv.writer(log).writerow([job.steps, loss.item()])
        if job.steps % 10 == 0:
            torch.save(model.state_dict(), folder / "weights.pt")
    if job.steps % 10 == 0:
        kit.moment(job, args)
        dist.barrier()
