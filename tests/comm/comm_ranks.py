"""Ranks as forked processes of the test: torch is imported once, and none outlives its test."""

import faulthandler
import multiprocessing
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from fake_nccl import stands_in

from trainmover.comm import groups, hook_torch
from trainmover.communicators import NCCL

_FORK = multiprocessing.get_context("fork")
PATIENCE_S = 60


def _host_store(pipe: Any) -> None:
    """Not in the test's own process: its server has threads, and they do not survive a fork."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipe.send(store.port)
    signal.pause()


class Ranks:
    """A few processes, a store they share, and a way to talk to each by queue.

    A program is `program(rank, ranks) -> result`. It runs in a child, so what it returns must
    be picklable; what it raises fails the test with the child's traceback.
    """

    def __init__(self, size: int, comm: str) -> None:
        self.size = size
        self.comm = comm
        self.token: bytes | None = b"the job's token"
        mine, theirs = _FORK.Pipe()
        self._host = _FORK.Process(target=_host_store, args=(theirs,), daemon=True)
        self._host.start()
        self._port = int(mine.recv())
        self._results: Any = _FORK.SimpleQueue()
        self._folder = tempfile.TemporaryDirectory(prefix="tm-")
        self.processes: dict[str, Any] = {}
        self._answers: dict[str, Any] = {}

    def connect(self) -> dist.Store:
        """A connection to the shared store, for use in a child."""
        return dist.TCPStore(
            "127.0.0.1", self._port, is_master=False, timeout=timedelta(seconds=60)
        )

    def start(self, name: str, program: Callable[..., Any], *args: Any) -> None:
        process = _FORK.Process(target=self._child, args=(name, program, args), daemon=True)
        process.start()
        self.processes[name] = process

    def _child(self, name: str, program: Callable[..., Any], args: tuple[Any, ...]) -> None:
        faulthandler.dump_traceback_later(PATIENCE_S - 10, exit=True)
        torch.set_num_threads(1)
        os.environ["TMPDIR"] = self._folder.name  # It ends without its clean-up.
        try:
            hook_torch(groups)
            if self.comm == NCCL:
                groups.choose("native", self.token, NCCL)
            else:
                groups.choose(self.comm, self.token)
            answer = (name, program(*args), None)
        except BaseException:  # noqa: BLE001  the child's outermost frame: the test gets it
            answer = (name, None, traceback.format_exc())
        self._results.put(answer)
        os._exit(0)

    def result(self, name: str) -> Any:
        """What the child returned. Waits for it; other answers are kept."""
        while name not in self._answers:
            self._await_answer(name)
            who, value, error = self._results.get()
            assert error is None, f"{who}:\n{error}"
            self._answers[who] = value
        return self._answers[name]

    def _await_answer(self, name: str) -> None:
        process = self.processes[name]
        while not self._results._reader.poll(0.2):
            gone = not process.is_alive() and self._results.empty()
            assert not gone, f"{name} ended without an answer, code {process.exitcode}"

    def run(self, program: Callable[..., Any], *args: Any) -> list[Any]:
        """`program(rank, ranks, *args)` on every rank; the results by rank."""
        for rank in range(self.size):
            self.start(str(rank), program, rank, self, *args)
        return [self.result(str(rank)) for rank in range(self.size)]

    def run_survivors(self, program: Callable[..., Any], *args: Any) -> list[Any]:
        """Run `program` on every rank; return the results of all but the last, which has none."""
        for rank in range(self.size):
            self.start(str(rank), program, rank, self, *args)
        return [self.result(str(rank)) for rank in range(self.size - 1)]

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.processes[name].pid, number)

    def close(self) -> None:
        for process in [*self.processes.values(), self._host]:
            with suppress(ProcessLookupError):
                process.kill()
            process.join()
        self._folder.cleanup()


@pytest.fixture(params=["gloo", "native"])
def comm(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every communicator in turn; or the one that a test names. "nccl" is the stand-in, and carries
    what lies in host memory."""
    if request.param != NCCL:
        yield request.param
        return
    with stands_in():
        yield NCCL


@pytest.fixture
def ranks(request: pytest.FixtureRequest, comm: str) -> Iterator[Ranks]:
    """Four ranks, or as many as `@pytest.mark.parametrize("ranks", [n], indirect=True)` says."""
    team = Ranks(getattr(request, "param", 4), comm)
    yield team
    team.close()


def join_live(rank: int, ranks: Ranks, epoch: int = 1) -> dist.Store:
    """Have torch's world in this child served by ours, in `epoch`."""
    store = ranks.connect()
    groups.use_store(store, epoch)
    dist.init_process_group(
        NCCL if ranks.comm == NCCL else "gloo",
        store=dist.PrefixStore(f"script{epoch}", store),
        rank=rank,
        world_size=ranks.size,
    )
    return store


def meet(rank: int, ranks: Ranks, store: dist.Store) -> None:
    """Until all have come this far: who goes on alone might end what others still begin."""
    store.set(f"met/{rank}", "")
    store.wait([f"met/{other}" for other in range(ranks.size)])


def join_with_silent_peer(rank: int, ranks: Ranks, more: int = 0) -> list[Any]:
    """Return the world and so many more groups of all ranks, each used once; from then on the last
    rank makes no more calls."""
    store = join_live(rank, ranks)
    made: list[Any] = [dist.group.WORLD, *(dist.new_group() for _ in range(more))]
    for group in made:
        dist.barrier(group)
    meet(rank, ranks, store)
    if rank == ranks.size - 1:
        signal.pause()
    return made
