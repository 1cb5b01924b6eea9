"""What scripts do between a step and the next batch, one habit a run: --habit says which."""

import argparse
import os
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import trainmover as tm

parser = argparse.ArgumentParser()
parser.add_argument("--habit", required=True)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--pace", type=float, default=0.0)
parser.add_argument("--hurry", default="", help="file whose existence ends the pacing")
args = parser.parse_args()

torch.set_num_threads(1)
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
job.track(model=model, optimizer=optimizer)
torch.manual_seed(100 + job.rank)

rows = torch.randn(4000, 8, generator=torch.Generator().manual_seed(3))
data = TensorDataset(rows, rows.sum(1, keepdim=True))
held_out = TensorDataset(rows[:40], rows[:40].sum(1, keepdim=True))


class Stream:
    """A loader of the script's own, without a length."""

    def __iter__(self) -> Iterator[list[Tensor]]:
        for at in range(job.rank, 4000, job.world_size):
            part = torch.arange(at, at + 16) % 4000
            yield list(data[part])


def pace() -> None:
    if args.pace and not (args.hurry and os.path.exists(args.hurry)):
        time.sleep(args.pace)


@job.step
def train_step(inputs: Tensor, targets: Tensor) -> Tensor:
    pace()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    if args.habit == "barrier":
        dist.monitored_barrier()
    return loss.detach()


def evaluate() -> None:
    model.eval()
    total = torch.zeros(())
    with torch.no_grad():
        for inputs, targets in DataLoader(held_out, 16):
            total += nn.functional.mse_loss(net(inputs), targets)
    dist.all_reduce(total)
    model.train()


def between(loss: Tensor) -> None:
    match args.habit:
        case "average":
            dist.all_reduce(loss)
        case "log":
            dist.all_gather_object([None] * job.world_size, {"rank": job.rank, "step": job.steps})
            dist.barrier()
        case "evaluate":
            evaluate()
        case "rank-0-evaluates":
            if job.rank == 0 and job.steps % 3 == 0:
                for _ in job.batches(DataLoader(held_out, 16)):
                    pass
            dist.barrier()


def late(loss: Tensor, sums: list[Any]) -> None:
    """A sum that is waited for behind the step after."""
    if sums:
        sums.pop().wait()
    if args.habit == "late":
        sums.append(dist.all_reduce(loss, async_op=True))


def batches() -> Iterator[Any]:
    if args.habit == "stream":
        return job.batches(Stream(), passes=None)
    return job.batches(DataLoader(data, 16, shuffle=True), passes=None)


def by_hand() -> None:
    drawn = iter(batches())
    while job.steps < args.steps:
        loss = train_step(*next(drawn))
        dist.all_reduce(loss)


def without_loader() -> None:
    def step() -> None:
        train_step(*data[torch.randint(4000, (16,))])

    if args.habit == "range":
        for _ in job.batches(range(args.steps)):
            step()
    else:
        for _ in range(args.steps):
            step()


def loops() -> None:
    """A loop for each data pass, and one over what is held out behind each."""
    few = TensorDataset(rows[:64], rows[:64].sum(1, keepdim=True))
    while job.steps < args.steps:
        for inputs, targets in job.batches(DataLoader(few, 32, shuffle=True)):
            dist.all_reduce(train_step(inputs, targets))
        for inputs, _ in job.batches(DataLoader(held_out, 16)):
            dist.all_reduce(net(inputs).mean().detach())


def usual() -> None:
    sums: list[Any] = []
    for inputs, targets in batches():
        if args.habit == "before":
            dist.all_reduce(torch.zeros(()))
        loss = train_step(inputs, targets)
        between(loss)
        late(loss, sums)
        if job.steps >= args.steps:
            break


loop = {"by-hand": by_hand, "range": without_loader, "no-loader": without_loader, "loops": loops}
loop.get(args.habit, usual)()
dist.barrier()
