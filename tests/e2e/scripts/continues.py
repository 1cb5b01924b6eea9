"""Begins from its own snapshot file, if there is one, and writes it now and then."""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import trainmover as tm

parser = argparse.ArgumentParser()
parser.add_argument("--snapshot", type=Path, required=True)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--until", default="", help="file whose existence ends the job")
args = parser.parse_args()

torch.set_num_threads(1)
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)
net = nn.Linear(8, 1)
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
job.track(model=net, optimizer=optimizer)
passes_run = 0
if args.snapshot.exists():
    found = torch.load(args.snapshot, weights_only=True)
    net.load_state_dict(found["model"])
    passes_run = found["passes_run"]


@job.step
def train_step(inputs: Tensor, targets: Tensor) -> None:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()


rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(3))
data = TensorDataset(rows, rows.sum(1, keepdim=True))
while job.steps < args.steps:
    for inputs, targets in job.batches(DataLoader(data, 32)):
        train_step(inputs, targets)
        time.sleep(0.02)
    passes_run += 1
    if job.rank == 0 and not job.is_shadow:
        torch.save({"model": net.state_dict(), "passes_run": passes_run}, args.snapshot)
    over = torch.tensor(float(os.path.exists(args.until)))
    dist.broadcast(over, 0)
    if over:
        break
