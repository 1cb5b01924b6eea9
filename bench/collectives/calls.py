# SPDX-License-Identifier: Apache-2.0
"""Time of a call: every arm, 2 and 4 ranks, all sizes, arms in turns."""

import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.collectives import openmpi
from bench.collectives.arms import Arm, GlooArm, NativeArm, buffers, check
from bench.collectives.crew import Crew
from bench.collectives.meeting import Meeting
from bench.collectives.timing import BATCH, Spent, size_said, slowest, timed

KIB, MIB = 1 << 10, 1 << 20
CLAIMED = (8, 64 * KIB, MIB, 64 * MIB)
OURS = ("ours shm", "ours tcp")
MPI = {"Open MPI shm": "shm", "Open MPI tcp": "tcp"}
CALL_ALONE = "ours, one seat"  # what the call itself costs: Python, the binding, no peer
MEMORY_ARMS = ("ours shm", "Open MPI shm", CALL_ALONE)


@dataclass(frozen=True)
class Cell:
    arm: str
    ranks: int
    operation: str
    size_bytes: int


ALONE = Cell(CALL_ALONE, 1, "all_reduce", 8)
Times = dict[Cell, list[Spent]]


@dataclass
class Calls:
    """times: by cell, one entry a round. why_no_mpi: "" if it was measured."""

    times: Times = field(default_factory=dict)
    loads: list[float] = field(default_factory=list)
    why_no_mpi: str = ""

    def add(self, cell: Cell, spent: Spent) -> None:
        self.times.setdefault(cell, []).append(spent)


class Rank:
    """In a process of the crew: one seat of every arm."""

    def __init__(self, seat: int, size: int) -> None:
        self._seat, self._size = seat, size
        self._arms: dict[str, Arm] = {}
        self._natives: dict[str, NativeArm] = {}
        self._meeting = Meeting()

    def open_native(self, name: str) -> bytes:
        """Its card. Hosts that differ in name have only TCP between them."""
        host = "one host" if name == "ours shm" else f"host {self._seat}"
        self._natives[name] = NativeArm(self._seat, self._size, host)
        return self._natives[name].card()

    def join_native(self, name: str, cards: list[bytes]) -> None:
        self._natives[name].join(cards)
        self._arms[name] = self._natives[name]

    def open_alone(self) -> None:
        alone = NativeArm(0, 1, "one host")
        alone.join([alone.card()])
        self._arms[CALL_ALONE] = alone

    def serve_store(self) -> int:
        return self._meeting.serve()

    def open_gloo(self, port: int) -> None:
        self._meeting.visit(port)
        self._arms["gloo"] = GlooArm(self._seat, self._size, self._meeting.room("calls"))

    def measure(self, cell: Cell, samples: int, batch: int) -> Spent:
        """Checks one result, then times calls on zeros, whose sums stay small."""
        held = buffers(self._seat % cell.ranks, cell.ranks, cell.size_bytes)
        call = self._arms[cell.arm].call(cell.operation, held)
        call()
        check(cell.operation, held)
        held.whole.zero_()
        spent = timed(call, samples, batch)
        if cell.operation == "send_recv":  # there and back: half of it is one message
            return Spent(spent.median_us / 2, spent.mean_us / 2)
        return spent


@dataclass(frozen=True)
class Plan:
    """What to measure: all_reduce at `sizes`, the other `operations` at `other_sizes`.

    budget_s  no further round begins that would probably end later; two are made in any case
    """

    rounds: int
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    operations: tuple[str, ...]
    other_sizes: tuple[int, ...]
    budget_s: float = math.inf

    def enough(self, rounds: int, spent_s: float) -> bool:
        return rounds >= 2 and spent_s * (rounds + 1) / rounds > self.budget_s


def run(plan: Plan) -> Calls:
    """All rounds. The processes of all rank counts live throughout; those not measured sleep."""
    calls = Calls()
    version = openmpi.version()
    with ExitStack() as stack:
        mpi = None
        if version is None:
            calls.why_no_mpi = "Open MPI (mpirun and mpicc) is not installed"
        else:
            folder = stack.enter_context(TemporaryDirectory(prefix="bench-collectives-"))
            mpi = openmpi.OpenMpi(Path(folder))
        crews = {ranks: stack.enter_context(crew_of(ranks)) for ranks in plan.ranks}
        began = time.monotonic()
        for turn in range(plan.rounds):
            if plan.enough(turn, time.monotonic() - began):
                break
            for ranks, crew in crews.items():
                _all_reduce(calls, crew, ranks, plan.sizes, turn)
                if mpi is not None:
                    _open_mpi(calls, mpi, ranks, plan.sizes)
                _others(calls, crew, ranks, plan, turn)
            calls.loads.append(os.getloadavg()[0])
            print(f"round {turn + 1}: load {calls.loads[-1]:.1f}", file=sys.stderr, flush=True)
    return calls


@contextmanager
def crew_of(ranks: int) -> Iterator[Crew]:
    """Processes in which ours over both transports and gloo are connected."""
    with Crew(ranks, lambda seat: Rank(seat, ranks)) as crew:
        for name in OURS:
            cards = crew.all("open_native", name)
            crew.all("join_native", name, cards)
        crew.all("open_alone")
        crew.all("open_gloo", crew.one(0, "serve_store"))
        yield crew


def often(arm: str, size_bytes: int) -> tuple[int, int]:
    """Samples, and calls in each: enough for a median, and no arm waits long for another."""
    if size_bytes > 64 * KIB:
        return {MIB: 50, 8 * MIB: 15, 64 * MIB: 5}[size_bytes], 1
    samples = 10 if size_bytes == 64 * KIB else 40
    return samples * (20 if arm in MEMORY_ARMS else 1), BATCH


def in_turn(arms: tuple[str, ...], turn: int) -> tuple[str, ...]:
    """Another arm begins in every round."""
    first = turn % len(arms)
    return arms[first:] + arms[:first]


def _all_reduce(calls: Calls, crew: Crew, ranks: int, sizes: tuple[int, ...], turn: int) -> None:
    for size in sizes:
        for arm in in_turn((*OURS, "gloo"), turn):
            _measure(calls, crew, Cell(arm, ranks, "all_reduce", size))
    _measure(calls, crew, ALONE)


def _others(calls: Calls, crew: Crew, ranks: int, plan: Plan, turn: int) -> None:
    for operation in plan.operations:
        for size in plan.other_sizes:
            for arm in in_turn((*OURS, "gloo"), turn):
                _measure(calls, crew, Cell(arm, ranks, operation, size))


def _measure(calls: Calls, crew: Crew, cell: Cell) -> None:
    count = often(cell.arm, cell.size_bytes)
    try:
        spent = slowest(crew.all("measure", cell, *count, seats=range(cell.ranks)))
    except Exception as failed:
        failed.add_note(f"in {cell.operation} of {size_said(cell.size_bytes)}, {cell}")
        raise
    calls.add(cell, spent)


def _open_mpi(calls: Calls, mpi: openmpi.OpenMpi, ranks: int, sizes: tuple[int, ...]) -> None:
    for arm, transport in MPI.items():
        counts = {size: often(arm, size) for size in sizes}
        for size, spent in mpi.all_reduce(transport, ranks, counts).items():
            calls.add(Cell(arm, ranks, "all_reduce", size), spent)
