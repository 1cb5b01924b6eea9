"""A small job for end-to-end tests: DDP, AdamW, dropout, batch-norm, schedule, shuffled data.

Its numbers depend on nothing but --steps, --seed and the ranks. --pace only makes steps last.
"""

import argparse
import ctypes
import math
import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trainmover as tm
from trainmover.worker.join.rollback import InPlace

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--pace", type=float, default=0.01)
parser.add_argument("--naps", type=int, default=1, help="in which the pace is spent")
parser.add_argument("--hurry", default="", help="file whose existence ends the pacing")
parser.add_argument("--until", default="", help="file whose existence ends the job, before --steps")
parser.add_argument("--evaluate-every", type=int, default=0)
parser.add_argument("--misbehave", default="")
parser.add_argument("--stall", default="", help="folder whose file MACHINE makes it stall there")
parser.add_argument("--device", default="cpu")
parser.add_argument("--ballast", type=int, default=0, help="MiB of parameters without gradients")
parser.add_argument("--frozen", type=int, default=0, help="MiB that nobody writes to")
args = parser.parse_args()

torch.set_num_threads(1)
if args.misbehave == "never-attach":
    dist.init_process_group("gloo")
    time.sleep(args.pace)
    print("done without attach")
    sys.exit(0)

if args.misbehave == "no-way-back":  # An error of trainmover's own, in all processes alike.
    InPlace.trace = lambda place: place.missing
job = tm.attach()
if job.world_size > 1:
    dist.init_process_group("gloo")
torch.manual_seed(1)
net = nn.Sequential(
    nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 64),
    nn.ReLU(), nn.Linear(64, 1),
).to(args.device)  # fmt: skip
net.ballast = nn.Parameter(torch.zeros(args.ballast << 18, device=args.device), requires_grad=False)
net.frozen = nn.Parameter(torch.ones(args.frozen << 18, device=args.device), requires_grad=False)
model = nn.parallel.DistributedDataParallel(net) if job.world_size > 1 else net
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.9)
job.track(model=model, optimizer=optimizer, scheduler=scheduler)
asked_to_end = torch.zeros(())
torch.manual_seed(100 + job.rank)


def stall(where: str = "") -> None:
    """As the file of this machine says, once: who takes the rank does not stall again."""
    order = Path(args.stall, os.environ.get("TRAINMOVER_MACHINE", "none") + where)
    if not args.stall or job.is_shadow or not order.is_file():
        return
    kind = order.read_text()
    order.unlink()
    if kind == "loop":
        while True:
            math.sqrt(2.0)
    if kind == "lock":
        threading.Event().wait()
    if kind == "gil":  # PyDLL keeps the interpreter while C sleeps
        ctypes.PyDLL(None).sleep(1000)
    if kind == "undeclared":
        time.sleep(2.5)
    if kind == "undeclared gil":
        ctypes.PyDLL(None).sleep(3)
    if kind == "evaluation":
        with job.pause_watch("evaluation"), job.pause_watch("its first half"):
            time.sleep(2.5)


@job.step
def train_step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if not os.path.exists(args.hurry):
        for _ in range(args.naps):  # Who is stopped in one of many is late.
            time.sleep(args.pace / args.naps)
    stall()
    x.mul_(1.0).add_(0.01 * torch.randn(()))  # a step may change its batch in place
    loss = (model(x) - y).square().mean()
    loss.backward()
    if args.misbehave == "raise-inside" and job.rank == 1 and job.steps == 50:
        raise ValueError("the data is broken")
    if args.misbehave == "differ" and job.steps == 5:
        other = torch.ones(3)
        dist.broadcast(other, 0) if job.rank == 1 else dist.all_reduce(other)
    job.report(loss=loss)
    if args.until:
        dist.all_reduce(asked_to_end.fill_(os.path.exists(args.until)))
    if args.misbehave != "never-step":
        optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
    with torch.no_grad():
        net.ballast[::65536] += 1
    return loss.detach()


@job.step
def evaluate() -> torch.Tensor:
    net.eval()
    with torch.no_grad():
        total = net(torch.ones(4, 16, device=args.device)).sum()
    net.train()
    if job.world_size > 1:
        dist.all_reduce(total)
    return total


def misbehave() -> None:
    if args.misbehave == "raise" and job.rank == 1 and job.steps == 5:
        raise ValueError("the data is broken")
    if args.misbehave == "exit-early" and job.rank == 1 and job.steps == 8:
        sys.exit(0)
    if args.misbehave == "exit-7" and job.steps == 5:
        sys.exit(7)
    if args.misbehave == "flip" and job.rank == 1 and job.steps == 14 and not job.is_shadow:
        net[4].weight.data.view(torch.int32)[3, 5] ^= 1 << 22  # as a failing memory cell does


x = torch.randn(2000, 16, generator=torch.Generator().manual_seed(3))
data = TensorDataset(x, x.sum(1, keepdim=True))
sampler = DistributedSampler(data, job.world_size, job.rank, shuffle=True, drop_last=True)
loader = DataLoader(data, 16, sampler=sampler, drop_last=True)
for inputs, targets in job.batches(loader, passes=None):
    train_step((inputs + 0.01 * torch.randn(())).to(args.device), targets.to(args.device))
    misbehave()
    stall("-between")
    if args.evaluate_every and job.steps % args.evaluate_every == 0:
        evaluate()
    if job.steps >= args.steps or asked_to_end.item() > 0:
        break
if job.rank == 0:
    print(f"rank 0 is done after {job.steps} steps")
