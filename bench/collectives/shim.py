# SPDX-License-Identifier: Apache-2.0
"""What `dist.all_reduce` costs above the call into the extension: torch's layer and our shim."""

import importlib
import os
import statistics
import sys
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.distributed as dist

from bench.collectives.arms import NativeArm
from bench.collectives.crew import Crew
from bench.collectives.meeting import Meeting
from bench.collectives.timing import BATCH, Spent, slowest, timed

RANKS = 2
SAMPLES = 100
SIZE_BYTES = 8
WAYS = ("through torch", "direct")


@dataclass
class Added:
    """Times of both ways, one entry a round."""

    times: dict[str, list[Spent]] = field(default_factory=lambda: {way: [] for way in WAYS})
    loads: list[float] = field(default_factory=list)

    def each_us(self) -> list[float]:
        """Microseconds added, of each round."""
        pairs = zip(*(self.times[way] for way in WAYS), strict=True)
        return [through.median_us - direct.median_us for through, direct in pairs]

    def median_us(self) -> float:
        return statistics.median(self.each_us())


class ShimRank:
    """In a process: torch's default group served by us, and a group of the extension beside it."""

    def __init__(self, seat: int) -> None:
        self._seat = seat
        self._native = NativeArm(seat, RANKS, "one host", "beside")
        self._meeting = Meeting()
        self._data = torch.zeros(SIZE_BYTES // 4)

    def serve_store(self) -> int:
        return self._meeting.serve()

    def card(self) -> bytes:
        return self._native.card()

    def join(self, cards: list[bytes], port: int) -> None:
        self._native.join(cards)
        os.environ["TRAINMOVER_COMM"] = "native"
        importlib.import_module("trainmover.comm.install")
        self._meeting.visit(port)
        store = self._meeting.room("shim")
        dist.init_process_group("gloo", store=store, rank=self._seat, world_size=RANKS)

    def measure(self, way: str) -> Spent:
        if way == "through torch":
            return timed(partial(dist.all_reduce, self._data), SAMPLES, BATCH)
        group, f32, add = self._native.group, self._native.f32, self._native.sum
        data, count = self._data.data_ptr(), self._data.numel()
        return timed(partial(group.all_reduce, data, count, f32, add, False), SAMPLES, BATCH)


def run(rounds: int) -> Added:
    """Both ways in turns, in the same two processes."""
    added = Added()
    with Crew(RANKS, ShimRank) as crew:
        port = crew.one(0, "serve_store")
        crew.all("join", crew.all("card"), port)
        for turn in range(rounds):
            for way in WAYS[:: -1 if turn % 2 else 1]:
                added.times[way].append(slowest(crew.all("measure", way)))
            added.loads.append(os.getloadavg()[0])
    print(f"shim: {added.median_us():.1f} us added", file=sys.stderr, flush=True)
    return added
