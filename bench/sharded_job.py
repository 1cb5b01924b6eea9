# SPDX-License-Identifier: Apache-2.0
"""FSDP2 over all ranks, so that each alone holds its shard: 35 MB of state a rank of three."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

import trainmover as tm

WIDTH = 1024
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--pace", type=float, default=0.1, help="seconds that a step waits")
args = parser.parse_args()

torch.set_num_threads(1)
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)
model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(8)))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor) -> Tensor:
    time.sleep(args.pace)  # as an accelerator would compute, without the processor
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


for batch in job.batches(list(torch.randn(64, 4, WIDTH)), passes=None):
    train_step(batch)
    if job.steps >= args.steps:
        break
