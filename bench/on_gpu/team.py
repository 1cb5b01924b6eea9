# SPDX-License-Identifier: Apache-2.0
"""Ranks that share a GPU, as processes of the bench."""

import multiprocessing
import os
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import one_gpu  # tests/gpu: bench.gpu has put it where it is found
import torch
import torch.distributed as dist

from bench.result import Claim

_FORK = multiprocessing.get_context("fork")
_PATIENCE_S = 120
Program = Callable[..., Any]


@dataclass(frozen=True)
class Plan:
    """device: "cpu" where the stand-in is used; quick: a look."""

    device: str
    quick: bool

    @property
    def stands_in(self) -> bool:
        return self.device == "cpu"

    def among(self, few: int, many: int) -> int:
        return few if self.quick else many


@dataclass
class Found:
    """What a part has come to. table: lines of Markdown; raw: every number."""

    claims: list[Claim] = field(default_factory=list)
    table: list[str] = field(default_factory=list)
    raw: Any = None


class Team:
    """Ranks as processes that have not touched the GPU before, with a store that they share."""

    def __init__(self, size: int, device: str) -> None:
        self.size, self.device = size, device
        self._results: Any = _FORK.Queue()
        mine, theirs = _FORK.Pipe()
        self._host = _FORK.Process(target=_host_store, args=(theirs,), daemon=True)
        self._host.start()
        self.port = int(mine.recv())
        self.processes: dict[int, Any] = {}

    def start(self, rank: int, program: Program, *args: Any) -> None:
        process = _FORK.Process(target=self._child, args=(rank, program, args), daemon=True)
        process.start()
        self.processes[rank] = process

    def _child(self, rank: int, program: Program, args: tuple[Any, ...]) -> None:
        try:
            answer = (rank, program(self, rank, *args), "")
        except BaseException as error:  # noqa: BLE001  the child's outermost frame
            answer = (rank, None, repr(error))
        self._results.put(answer)
        self._results.close()
        self._results.join_thread()
        os._exit(0)

    def results(self, count: int) -> dict[int, Any]:
        found = {}
        for _ in range(count):
            rank, value, error = self._results.get(timeout=_PATIENCE_S)
            if error:
                raise RuntimeError(f"rank {rank}: {error}")
            found[rank] = value
        return found

    def run(self, program: Program, *args: Any) -> dict[int, Any]:
        for rank in range(self.size):
            self.start(rank, program, *args)
        return self.results(self.size)

    def close(self) -> None:
        for process in [*self.processes.values(), self._host]:
            if process.is_alive():
                process.kill()
            process.join()

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # In a rank.

    def store(self) -> dist.Store:
        patience = timedelta(seconds=_PATIENCE_S)
        return dist.TCPStore("127.0.0.1", self.port, is_master=False, timeout=patience)

    def join(self, rank: int, *, ours: bool = True) -> dist.Store:
        """The world, by our groups or by torch's own."""
        if self.device == "cuda":
            one_gpu.pass_for_a_host()
            torch.cuda.set_device(0)
        store = self.store()
        if ours:
            from trainmover.comm import groups, hook_torch

            hook_torch(groups)
            groups.choose("native", b"a bench's token", "nccl")
            groups.use_store(store, 1)
        script = dist.PrefixStore("script", store)
        dist.init_process_group("nccl", store=script, rank=rank, world_size=self.size)
        return store

    def join_and_lose(self, rank: int, how: int) -> torch.Tensor:
        """Join, make one call, and have rank 1 end by this signal; returns what was summed."""
        store, tensor = self.join(rank), self.ones(1 << 20)
        dist.all_reduce(tensor)
        self.finish()
        store.set(f"ready/{rank}", "")
        store.wait([f"ready/{other}" for other in range(self.size)])
        if rank == 1:
            os.kill(os.getpid(), how)
        return tensor

    def ones(self, count: int) -> torch.Tensor:
        return torch.ones(count, device=self.device)

    def finish(self) -> None:
        """All that was given to the device is done."""
        if self.device == "cuda":
            torch.cuda.synchronize()


def _host_store(pipe: Any) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipe.send(store.port)
    signal.pause()


def median_us(times: list[float]) -> float:
    return statistics.median(times) * 1e6


def timed(job: Callable[[], object]) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began
