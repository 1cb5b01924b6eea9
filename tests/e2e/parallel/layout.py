"""What the scripts in this folder share: flags, pace, data, the loop.

Only functions: a module stays loaded when its process runs the script again, as another rank.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trainmover as tm
from trainmover.state import staging
from trainmover.state.proof import device_digest
from trainmover.worker.step import changes

WIDTH, BATCH = 16, 8
SLOW = 20
SHOWN = 11
"""Steps, after which two rounds have told who holds what."""


def flags() -> argparse.Namespace:
    """Numbers depend on --steps, --optimizer and the ranks; --pace only makes steps last."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--optimizer", choices=["sgd", "adamw", "zero"], default="adamw")
    parser.add_argument("--pace", type=float, default=0.0)
    parser.add_argument("--change-at", type=int, default=0, help="steps, then they are others")
    parser.add_argument("--begin", default="", help="file whose existence ends the first waits")
    parser.add_argument("--peaks", default="", help="folder for each rank's peak of GPU memory")
    parser.add_argument("--distant", default="", help="file; all state is taken for a device's")
    parser.add_argument(
        "--runs", default="", help="file that gets a line from each run: its process"
    )
    parser.add_argument("--hurry", default="", help="file whose existence ends the pacing")
    torch.set_num_threads(1)
    args = parser.parse_args()
    if args.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        if os.environ.get("ONE_GPU"):  # NCCL wants a device for each rank of a host.
            os.environ["NCCL_HOSTID"] = f"one-gpu-{os.getpid()}"
    if args.runs:
        with Path(args.runs).open("a") as file:
            file.write(f"{os.getpid()}\n")
    if args.distant:
        take_for_distant(Path(args.distant))
    return args


def take_for_distant(told: Path) -> None:
    """Have memory of this host pass for a device's: it is hashed, and copied into snapshots, as
    that would be. A copy beside a step takes a while, and leaves a file."""

    def slowly(flat: Tensor, place: Tensor, behind: object = None) -> None:
        if threading.current_thread().name == "tm-late-copy":
            told.touch()
            time.sleep(0.002)
        place.copy_(flat)

    staging.copy_to_host = slowly
    for room in (changes, device_digest):
        room.lies_elsewhere = lambda tensor: True


def optimizer_for(
    args: argparse.Namespace, parameters: Iterable[nn.Parameter]
) -> torch.optim.Optimizer:
    """What --optimizer says; `zero` shards the state of AdamW over all ranks."""
    match args.optimizer:
        case "sgd":
            return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)
        case "zero":
            return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=1e-3)
    return torch.optim.AdamW(parameters, lr=1e-3)


def pause(job: tm.Job, args: argparse.Namespace) -> None:
    """Called twice in a step, so that it is interrupted before and behind collectives.

    Where few steps would be left to whoever disturbs the job they are slow: early ones until
    `--begin` is there, if it is given, and the last ones. It is said that they are: by the steps
    before, ranks would be taken for stuck.
    """
    waits = args.begin and job.steps >= SHOWN and not os.path.exists(args.begin)
    slow = waits or job.steps >= 0.75 * args.steps
    with job.pause_watch("slow steps") if slow else nullcontext():
        until = time.monotonic() + args.pace * (SLOW if slow else 1) / 2
        while (left := until - time.monotonic()) > 0 and not os.path.exists(args.hurry):
            if waits and os.path.exists(args.begin):
                return
            time.sleep(min(left, 0.1))


def batches(job: tm.Job, replica: int, replicas: int) -> Iterable[list[Tensor]]:
    """Endless; ranks of one data parallel replica draw the same."""
    x = torch.randn(512, WIDTH, generator=torch.Generator().manual_seed(3))
    sampler = DistributedSampler(TensorDataset(x, x.cumsum(1)), replicas, replica, drop_last=True)
    loader = DataLoader(sampler.dataset, BATCH, sampler=sampler, drop_last=True)
    return job.batches(loader, passes=None, samples=True)


def as_shown(data: Iterable[list[Tensor]]) -> Iterator[list[Tensor]]:
    """As progress bars do: what is fetched passes through a generator."""
    yield from data


def train(
    job: tm.Job,
    args: argparse.Namespace,
    data: Iterable[list[Tensor]],
    step: Callable[[Tensor, Tensor], Tensor],
) -> None:
    """`step` for every batch."""
    for x, y in as_shown(data):
        step(x.to(args.device), y.to(args.device))
        if job.steps >= args.steps:
            break
    if args.peaks:
        peak = torch.cuda.max_memory_reserved() if args.device == "cuda" else 0
        Path(args.peaks, f"rank-{job.rank}").write_text(str(peak))
