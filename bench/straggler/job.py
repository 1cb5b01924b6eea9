# SPDX-License-Identifier: Apache-2.0
"""A job whose steps last a tenth of a second and leave the cores mostly idle.

So a machine that is slowed is slow by itself, not because ranks share too few cores. A step is many
pieces: some arithmetic, then a nap, as of a rank that waits for a device. Who is stopped in one of
many short naps is late by about as long as he was stopped.
"""

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trainmover as tm

PIECES, NAP_S = 20, 0.004
parser = argparse.ArgumentParser()
parser.add_argument("--products", type=int, default=30, help="of matrices, in each piece (30)")
parser.add_argument("--width", type=int, default=64, help="of the model (64)")
parser.add_argument("--heavy", default="", help="file with the rank that has more to do, if any")
args = parser.parse_args()

torch.set_num_threads(1)
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(16, args.width), nn.ReLU(), nn.Linear(args.width, 1))
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
job.track(model=model, optimizer=optimizer)
data = TensorDataset(torch.randn(2**16, 16), torch.randn(2**16, 1))
loader = DataLoader(data, 4, sampler=DistributedSampler(data))
square = torch.full((96, 96), 1 / 96)


def pieces(heavy: bool) -> None:
    for _ in range(PIECES):
        for _ in range(args.products * (1 + 2 * heavy)):
            square @ square
        time.sleep(NAP_S)


def is_heavy() -> bool:
    try:
        return bool(args.heavy) and Path(args.heavy).read_text() == str(job.rank)
    except FileNotFoundError:
        return False


@job.step
def train_step(x: torch.Tensor, y: torch.Tensor) -> None:
    pieces(is_heavy())
    loss = (model(x) - y).square().mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for _ in range(100):
    for x, y in job.batches(loader):
        train_step(x, y)
dist.destroy_process_group()
