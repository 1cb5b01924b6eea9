# SPDX-License-Identifier: Apache-2.0
"""What the codes of frames cost, and encryption: an all_reduce of two ranks over loopback TCP.

A code is some tens of nanoseconds, which no two arms tell from chance. So one arm makes and checks
each code REPEATED times more, and what that adds, divided, is the cost of one. It includes both
ends' work where one waits for the other. Encrypted is what --tls does to collectives.
"""

import os
import sys
from dataclasses import dataclass, field

from bench.collectives.arms import NativeArm, buffers, check
from bench.collectives.crew import Crew
from bench.collectives.timing import BATCH, Spent, size_said, slowest, timed
from trainmover.tls import libcrypto

RANKS = 2
REPEATED = 64
WAYS = ("plain", "repeated", "encrypted")


@dataclass
class Codes:
    """times: by size and way, one entry a round."""

    times: dict[tuple[int, str], list[Spent]] = field(default_factory=dict)
    loads: list[float] = field(default_factory=list)

    def sizes(self) -> list[int]:
        return sorted({size for size, _ in self.times})

    def best_us(self, size_bytes: int, way: str) -> float:
        """Of the rounds: what disturbs only adds, and more than a code takes."""
        return min(one.median_us for one in self.times[size_bytes, way])

    def added_us(self, size_bytes: int) -> float:
        """By the codes of one call."""
        more_us = self.best_us(size_bytes, "repeated") - self.best_us(size_bytes, "plain")
        return more_us / REPEATED

    def share(self, size_bytes: int) -> float:
        """Of a call's time."""
        return self.added_us(size_bytes) / self.best_us(size_bytes, "plain")


@dataclass(frozen=True)
class Plan:
    rounds: int
    sizes: tuple[int, ...]


class End:
    """In a process: one seat of a plain group and of an encrypted one."""

    def __init__(self, seat: int) -> None:
        from trainmover import _native  # late, as in `NativeArm`

        host = f"host {seat}"
        self._repeat = _native.repeat_codes
        self._seat = seat
        self._arms = {
            "plain": NativeArm(seat, RANKS, host),
            "encrypted": NativeArm(seat, RANKS, host, libcrypto=libcrypto.path()),
        }

    def cards(self) -> dict[str, bytes]:
        return {way: arm.card() for way, arm in self._arms.items()}

    def join(self, cards: list[dict[str, bytes]]) -> None:
        for way, arm in self._arms.items():
            arm.join([card[way] for card in cards])

    def measure(self, way: str, size_bytes: int, samples: int) -> Spent:
        held = buffers(self._seat, RANKS, size_bytes)
        call = self._arms["encrypted" if way == "encrypted" else "plain"].call("all_reduce", held)
        call()
        check("all_reduce", held)
        held.whole.zero_()
        self._repeat(REPEATED if way == "repeated" else 0)
        return timed(call, samples, BATCH if size_bytes <= 1 << 16 else 1)


def run(plan: Plan) -> Codes:
    """The ways take turns."""
    codes = Codes()
    with Crew(RANKS, End) as crew:
        crew.all("join", crew.all("cards"))
        for turn in range(plan.rounds):
            for size in plan.sizes:
                first = turn % len(WAYS)
                for way in (*WAYS[first:], *WAYS[:first]):
                    spent = slowest(crew.all("measure", way, size, 30))
                    codes.times.setdefault((size, way), []).append(spent)
            codes.loads.append(os.getloadavg()[0])
    told = ", ".join(f"{size_said(size)} {codes.added_us(size):.2f} us" for size in codes.sizes())
    print(f"codes: {told}", file=sys.stderr, flush=True)
    return codes
