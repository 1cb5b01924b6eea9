# SPDX-License-Identifier: Apache-2.0
"""Many seats on this one machine: what a small sum costs them, and what sharing hosts does.

A small sum goes by a tree. It is compared with the way of all pairs, by which each seat's 8 bytes
go straight to each other seat: what a reduce_scatter of 8 bytes a seat sends. With many more seats
than cores the time is that of the whole work, not of the longest way.
"""

import os
import sys
from dataclasses import dataclass, field, replace

import torch

from bench.collectives.arms import NativeArm, buffers, check
from bench.collectives.crew import Crew
from bench.collectives.switchover import allow_many_files
from bench.collectives.timing import Spent, size_said, slowest, timed

SMALL_BYTES = 8


@dataclass(frozen=True)
class Case:
    """size_bytes  of one seat's part
    way         "tree", "all pairs", or "" where the operation is what it is
    """

    seats: int
    per_host: int
    operation: str
    size_bytes: int
    way: str = ""

    @property
    def said(self) -> str:
        hosts = f"{self.seats // self.per_host} hosts x {self.per_host}"
        return f"{self.operation} {size_said(self.size_bytes)}, {hosts}"


@dataclass
class Scale:
    """times: by case, one entry a round."""

    times: dict[Case, list[Spent]] = field(default_factory=dict)
    loads: list[float] = field(default_factory=list)

    @staticmethod
    def compared(case: Case) -> Case:
        """The case that this one is measured by."""
        if case.way:
            return replace(case, operation="reduce_scatter", way="all pairs")
        return replace(case, per_host=1)


@dataclass(frozen=True)
class Plan:
    """small: numbers of seats. shared: seats and seats a host, for parts of `part_bytes`."""

    rounds: int
    small: tuple[int, ...]
    shared: tuple[int, int]
    part_bytes: int


class Seat:
    """In a process: one seat of one group at a time."""

    def __init__(self, seat: int, size: int) -> None:
        allow_many_files()
        self._seat, self._size = seat, size
        self._arm: NativeArm | None = None

    def open(self, per_host: int) -> bytes:
        self._arm = NativeArm(self._seat, self._size, f"host {self._seat // per_host}")
        return self._arm.card()

    def measure(self, case: Case, samples: int) -> Spent:
        assert self._arm is not None
        held = buffers(self._seat, self._size, case.size_bytes * self._size)
        if case.operation == "all_reduce":  # one part: it cuts nothing among the seats
            held = replace(held, whole=held.whole[: held.part].clone())
        call = self._arm.call(case.operation, held)
        call()
        if case.operation == "all_reduce":
            self._check_sum(held.whole)
        else:
            check(case.operation, held)
        held.whole.zero_()
        return timed(call, samples)

    def _check_sum(self, whole: torch.Tensor) -> None:
        if not bool((whole == self._size * (self._size + 1) / 2).all()):
            raise ValueError(f"all_reduce: {whole.tolist()} in the result")

    def join(self, cards: list[bytes]) -> None:
        assert self._arm is not None
        self._arm.join(cards)


def cases(plan: Plan) -> list[tuple[Case, ...]]:
    """Those that one set of processes measures, in turns."""
    ways = (("all_reduce", "tree"), ("reduce_scatter", "all pairs"))
    small = [
        tuple(Case(seats, 1, operation, SMALL_BYTES, way) for operation, way in ways)
        for seats in plan.small
    ]
    seats, per_host = plan.shared
    operations = ("reduce_scatter", "all_gather")
    shared = [
        tuple(Case(seats, per, operation, plan.part_bytes) for operation in operations)
        for per in (per_host, 1)
    ]
    return small + shared


def run(plan: Plan) -> Scale:
    """All rounds. What is compared is measured in one round, one after the other."""
    scale = Scale()
    for _ in range(plan.rounds):
        for together in cases(plan):
            _measure(scale, together)
        scale.loads.append(os.getloadavg()[0])
        print(f"scale: load {scale.loads[-1]:.1f}", file=sys.stderr, flush=True)
    return scale


def _measure(scale: Scale, together: tuple[Case, ...]) -> None:
    seats, per_host = together[0].seats, together[0].per_host
    with Crew(seats, lambda seat: Seat(seat, seats)) as crew:
        crew.all("join", crew.all("open", per_host))
        for case in together:
            samples = {"tree": 30, "all pairs": 5}.get(case.way, 3)
            spent = slowest(crew.all("measure", case, samples))
            scale.times.setdefault(case, []).append(spent)
