"""How ordinary scripts draw: the habit that --habit names, in a job that reports every loss.

What a habit depends on is told with the loss, so that a difference shows in the rows of the job.
"""

import argparse
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

import trainmover as tm

parser = argparse.ArgumentParser()
parser.add_argument("--habit", required=True)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--pace", type=float, default=0.0)
parser.add_argument("--hurry", default="", help="file whose existence ends the pacing")
args = parser.parse_args()

unseeded = random.random(), float(numpy.random.rand()), torch.rand(()).item()
torch.set_num_threads(1)
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 1))
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
job.track(model=model, optimizer=optimizer)
torch.manual_seed(100 + job.rank)


class Items(Dataset[Tensor]):
    """Noise of whichever process loads, and of generators of its own."""

    def __init__(self, size: int = 48) -> None:
        self.size = size
        self.rng = numpy.random.default_rng(job.rank)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Tensor:
        own = torch.tensor([float(index), self.rng.random()])
        return torch.cat([own, torch.rand(6)]).float()


class Stream(IterableDataset[Tensor]):
    """Plain: no state, another sum each time."""

    def __iter__(self) -> Iterator[Tensor]:
        for number in range(1000):
            yield torch.cat([torch.tensor([float(number)]), torch.rand(7)])


def pause() -> None:
    """The last steps are so slow that whoever disturbs the job is done before it ends."""
    late = job.steps >= args.steps - 6
    with job.pause_watch("slow steps") if late else nullcontext():
        until = time.monotonic() + args.pace * (20 if late else 1)
        while (left := until - time.monotonic()) > 0 and not os.path.exists(args.hurry):
            time.sleep(min(left, 0.1))


@job.step
def train_step(x: Tensor, told: float = 0.0) -> Tensor:
    pause()
    loss = (model(x / 10) - x.sum(1, keepdim=True) / 50).square().mean()
    loss.backward()
    job.report(loss=loss, x=x.sum(), told=told, steps=job.steps)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def sampler(data: Any) -> Any:
    return DistributedSampler(data, job.world_size, job.rank, drop_last=True)


def loader(**options: Any) -> "DataLoader[Tensor]":
    data = Items()
    return DataLoader(data, 4, sampler=sampler(data), **options)


def own_generators() -> None:
    for batch in job.batches(loader(), None):
        train_step(batch)
        if done():
            break


def stateful_processes() -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    data = Items()
    for batch in job.batches(
        StatefulDataLoader(data, 4, sampler=sampler(data), num_workers=1), None
    ):
        train_step(batch)
        if done():
            break


def plain_stream() -> None:
    for batch in job.batches(DataLoader(Stream(), 4), None):
        train_step(batch)
        if done():
            break


def set_epoch() -> None:
    its = loader()
    for epoch in job.range(100):
        its.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        for batch in job.batches(its):
            train_step(batch, told=epoch)
            if done():
                return


def reserve(depth: int) -> None:
    batches = job.batches(loader(), None)
    held = deque(next(batches) for _ in range(depth))
    while not done():
        held.append(next(batches))
        train_step(held.popleft())


def ahead() -> None:
    reserve(1)


def far_ahead() -> None:
    reserve(3)


def counted() -> None:
    """A learning rate from the count, a best value, a generator of the script's."""
    noise = torch.Generator().manual_seed(job.rank)
    job.track(noise=noise)
    meter = Meter()
    for number, batch in enumerate(job.batches(loader(), passes=None), 1):
        optimizer.param_groups[0]["lr"] = 1e-3 / number
        batch += torch.rand(8, generator=noise)
        loss = train_step(batch, told=number + meter.best + sum(meter.losses)).item()
        meter.best = min(meter.best, loss)
        meter.losses.append(loss)
        if done():
            break


class Meter:
    def __init__(self) -> None:
        self.best = 9.0
        self.losses: deque[float] = deque(maxlen=4)


def without_loader() -> None:
    chance = Meter()
    for step in job.range(args.steps):
        x = torch.rand(4, 8) + step / 100
        chance.best = min(chance.best, train_step(x, told=chance.best + sum(unseeded)).item())


def done() -> bool:
    return job.steps >= args.steps


HABITS: list[Callable[[], None]] = [
    own_generators, stateful_processes, plain_stream, set_epoch, ahead, far_ahead, counted,
    without_loader,
]  # fmt: skip
{habit.__name__: habit for habit in HABITS}[args.habit]()
