"""What the habits share, so that each script shows its habit only: flags, a model, data, time.

Each folder has a link to this file, so that a script finds it beside itself however it is started.
Nothing here is stored to once it is made: what a habit keeps is in its own script.
"""

import argparse
import os
import signal
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trainmover as tm

WIDTH = 8
SAID = "said: "
SLOWEST_S = 0.25
"""Of a step that was to be held, while a move is under way."""


def flags() -> argparse.Namespace:
    """orders: a folder through which a run is disturbed; see `pace` and `moment`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--pace", type=float, default=0.0)
    parser.add_argument("--holds", type=int, nargs="*", default=[], help="steps to wait behind")
    parser.add_argument("--orders", default="", help="folder")
    return parser.parse_args()


def begin() -> tuple[tm.Job, argparse.Namespace]:
    """As every script begins: flags, the job, its group, a seed."""
    args = flags()
    torch.set_num_threads(1)
    job = tm.attach()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    return job, args


def pace(job: tm.Job, args: argparse.Namespace) -> None:
    """A step's time. Behind step --holds all ranks wait in it until there is a file `go-STEP`, and
    say so by a file `at-STEP-RANK`; as long as there is a file `slow` steps last longer, and go on:
    a move needs their boundaries."""
    slow = Path(args.orders, "slow")
    slows = bool(args.orders) and slow.exists()
    for hold in args.holds:
        go = Path(args.orders, f"go-{hold}")
        held = job.steps >= hold and not go.exists()
        if held and slow.exists():
            time.sleep(SLOWEST_S)
            continue
        if held and not job.is_shadow:
            Path(args.orders, f"at-{hold}-{job.rank}").touch()
        with job.pause_watch("orders") if held else nullcontext():
            while held and not go.exists():
                time.sleep(0.005)
    time.sleep(8 * args.pace if slows else args.pace)


def moment(job: tm.Job, args: argparse.Namespace) -> None:
    """Between steps, where a rank dies if a file `die-RANK` says so; whoever takes it does not."""
    order = Path(args.orders, f"die-{job.rank}")
    if args.orders and not job.is_shadow and order.exists():
        order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def say(job: tm.Job, text: str) -> None:
    """A line of rank 0; the mark tells it from warnings of libraries."""
    if job.rank == 0 and not job.is_shadow:
        print(f"{SAID}{text}", flush=True)


def network(norm: bool = True, dropout: float = 0.1) -> nn.Sequential:
    """Two layers."""
    norms = [nn.BatchNorm1d(16)] if norm else []
    return nn.Sequential(
        nn.Linear(WIDTH, 16), *norms, nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 1)
    )


def replicated(job: tm.Job, net: nn.Module, **options: Any) -> nn.Module:
    """DDP; from here on each rank draws numbers of its own."""
    model = nn.parallel.DistributedDataParallel(net, **options)
    torch.manual_seed(100 + job.rank)
    return model


def dataset(size: int = 240, seed: int = 3) -> TensorDataset:
    """Inputs, and a target that a linear layer can learn."""
    x = torch.randn(size, WIDTH, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x.cumsum(1).mean(1, keepdim=True))


def loader(job: tm.Job, data: Any = None, **options: Any) -> "DataLoader[Any]":
    """Fifteen batches a pass with two ranks, shuffled."""
    data = data or dataset()
    sampler: Any = DistributedSampler(data, job.world_size, job.rank, drop_last=True)
    return DataLoader(data, 8, sampler=sampler, drop_last=True, **options)


def until(job: tm.Job, args: argparse.Namespace, batches: Any) -> Iterator[Any]:
    """Batches, until --steps steps are made."""
    for batch in batches:
        yield batch
        if job.steps >= args.steps:
            return


def error(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The loss."""
    return (model(x) - y).square().mean()


def mean(value: Tensor) -> Tensor:
    """Of all ranks."""
    dist.all_reduce(value, dist.ReduceOp.AVG)
    return value
