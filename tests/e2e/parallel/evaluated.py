"""Data parallel, with an evaluation between steps on which later steps depend.

In the one evaluation after step --wait-at, rank 1 says so with a file and waits to be killed, if
nobody has waited there before.
"""

import time
from pathlib import Path

import torch
import torch.distributed as dist
from layout import WIDTH, batches, flags, pause
from torch import Tensor, nn

import trainmover as tm

WAIT_AT = 40
args = flags()
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(nn.Linear(WIDTH, WIDTH))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
job.track(model=model, optimizer=optimizer)
held_out = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(9 + job.rank))


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    pause(job, args)
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    pause(job, args)
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss


def evaluate() -> float:
    with torch.no_grad():
        error = model.module(held_out).square().mean()
    if args.hurry and job.rank == 1 and job.steps == WAIT_AT and not job.is_shadow:
        waits = Path(args.hurry).with_name("waits")
        while not waits.exists() or waits.read_text() == str(id(job)):
            waits.write_text(str(id(job)))
            time.sleep(0.01)
    dist.all_reduce(error, dist.ReduceOp.AVG)
    return float(error)


for x, y in batches(job, job.rank, job.world_size):
    train_step(x, y)
    if job.steps % 4 == 0:
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 / (1 + evaluate())
    if job.steps >= args.steps:
        break
