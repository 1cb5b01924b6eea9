# SPDX-License-Identifier: Apache-2.0
"""A job whose steps vary by a factor of five, and that evaluates for long: nothing is wrong."""

import argparse
import random
import time

import torch
import torch.distributed as dist
from torch import nn

import trainmover as tm

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=60.0)
parser.add_argument("--evaluation", type=float, default=20.0)
args = parser.parse_args()

torch.set_num_threads(1)
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
job.track(model=model, optimizer=optimizer)
over = torch.zeros(())


@job.step
def train_step(x: torch.Tensor, pause_s: float) -> torch.Tensor:
    time.sleep(pause_s)
    loss = model(x).square().mean()
    loss.backward()
    dist.all_reduce(over.fill_(time.monotonic() > ends_s))
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


begun_s = time.monotonic()
ends_s = begun_s + args.seconds
dice = random.Random(job.rank)
evaluated = False
for x in job.batches([torch.ones(4, 8)] * 100, passes=None):
    train_step(x, dice.uniform(0.02, 0.1))
    if over.item():
        break
    if not evaluated and job.steps > args.seconds * 5 and job.rank == 0:
        evaluated = True
        with job.pause_watch("evaluation"):
            time.sleep(args.evaluation)
