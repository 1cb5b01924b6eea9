"""A job whose loaders are of the kind that --loader names; its journal says what each step used."""

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

import trainmover as tm

parser = argparse.ArgumentParser()
parser.add_argument("--loader", required=True)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--pace", type=float, default=0.0)
parser.add_argument("--hurry", default="", help="file whose existence ends the pacing")
args = parser.parse_args()

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
    """The first number of an item is its id; the others are noise of whichever process loads."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Tensor:
        return torch.cat([torch.tensor([float(index)]), torch.rand(7)])


class Stream(IterableDataset[Tensor]):
    """This rank's share of an endless stream."""

    def __iter__(self) -> Iterator[Tensor]:
        for number in itertools.count(job.rank, job.world_size):
            yield torch.full((8,), float(number))


class Resumable(Stream):
    """The same, with a state."""

    def __init__(self) -> None:
        self.at = job.rank

    def __iter__(self) -> Iterator[Tensor]:
        while True:
            self.at += job.world_size
            yield torch.full((8,), float(self.at))

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Endless:
    """A loader of its own kind, without a length."""

    def __iter__(self) -> Iterator[Tensor]:
        for number in itertools.count(job.rank, job.world_size):
            yield torch.arange(4 * number, 4 * number + 4).float().repeat(8, 1).T


def loader(size: int, *, workers: int = 0, seed: int = 0) -> "DataLoader[Tensor]":
    data = Items(size)
    sampler: Any = DistributedSampler(data, job.world_size, job.rank, seed=seed, drop_last=True)
    return DataLoader(data, 4, sampler=sampler, num_workers=workers)


def stateful(data: Any, workers: int = 0) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    sampler: Any = None
    if not isinstance(data, IterableDataset):
        sampler = DistributedSampler(data, job.world_size, job.rank, drop_last=True)
    return StatefulDataLoader(data, 4, sampler=sampler, num_workers=workers)


def pause() -> None:
    """The last steps are so slow that whoever disturbs the job is done before it ends; and it is
    said that they are, or ranks would be taken for stuck."""
    late = job.steps >= args.steps - 6
    with job.pause_watch("slow steps") if late else nullcontext():
        until = time.monotonic() + args.pace * (20 if late else 1)
        while (left := until - time.monotonic()) > 0 and not os.path.exists(args.hurry):
            time.sleep(min(left, 0.1))


@job.step
def train_step(*batches: Tensor) -> Tensor:
    pause()
    x = torch.cat(batches)
    loss = (model(x / 100) - x.sum(1, keepdim=True) / 500).square().mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def ids(batch: Tensor) -> Tensor:
    return batch[:, 0].long()


def one(batches: Iterator[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    return ((batch,) for batch in batches)


def plain() -> Iterator[tuple[Tensor, ...]]:
    """Several passes, each shuffled anew."""
    return one(job.batches(loader(60), None, samples=True))


def processes() -> Iterator[tuple[Tensor, ...]]:
    return one(job.batches(loader(60, workers=2), None, samples=True))


def zipped() -> Iterator[tuple[Tensor, ...]]:
    """Labelled and unlabelled data, passes of different length."""
    labelled = job.batches(loader(48), None, samples=True)
    return zip(labelled, job.batches(loader(72, seed=5), None, samples=True), strict=True)


def beside() -> Iterator[tuple[Tensor, ...]]:
    """A loop per pass, and a second loader that goes on through all of them."""
    unlabelled = job.batches(loader(72, seed=5), None, samples=True)
    for _ in range(100):
        for batch in job.batches(loader(48), samples=True):
            yield batch, next(unlabelled)


def alternating() -> Iterator[tuple[Tensor, ...]]:
    """Two tasks, one of them drawn by chance."""
    tasks = [job.batches(loader(48, seed=seed), None, samples=True) for seed in (1, 2)]
    chance = torch.Generator().manual_seed(0)
    while True:
        chance.manual_seed(job.steps)
        yield (next(tasks[int(torch.randint(2, (), generator=chance))]),)


def accumulated() -> Iterator[tuple[Tensor, ...]]:
    """Two batches make a step."""
    batches = job.batches(loader(60), None, samples=True)
    while True:
        yield next(batches), next(batches)


def stream() -> Iterator[tuple[Tensor, ...]]:
    return one(job.batches(stateful(Stream()), None, samples=ids))


def resumable() -> Iterator[tuple[Tensor, ...]]:
    return one(job.batches(stateful(Resumable(), workers=1), None, samples=ids))


def items() -> Iterator[tuple[Tensor, ...]]:
    return one(job.batches(stateful(Items(60)), None, samples=ids))


def endless() -> Iterator[tuple[Tensor, ...]]:
    return one(job.batches(Endless(), None, samples=ids))


KINDS: list[Callable[[], Iterator[tuple[Tensor, ...]]]] = [
    plain, processes, zipped, beside, alternating, accumulated, stream, resumable, items, endless
]  # fmt: skip
for batches in {kind.__name__: kind for kind in KINDS}[args.loader]():
    train_step(*batches)
    if job.steps >= args.steps:
        break
