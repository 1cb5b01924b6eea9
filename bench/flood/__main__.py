# SPDX-License-Identifier: Apache-2.0
"""What strangers and viewers cost a job that trains, by the messages and by the steps of it.

    python -m bench.flood                   ten rounds of messages, five of steps: 15 minutes
    python -m bench.flood --quick           two rounds of each
    python -m bench.flood --only messages   or steps

Steps: see `bench/flood/steps.py`. Messages: what one between two members takes while strangers
flood the door of one. Strangers do not know the token. knocks: connections that say nothing, as
many as can be made; greetings: such as get a proof in answer; both over TCP, as another user where
that is possible. descriptors: by the local door, for which one must be the same user, each with a
socket whose closing takes seconds. Beside each a control arm: the same flood hits the door of a
third process, which is in no group. What the flood costs the cores is the same in both, so only
what it does to who listens is measured. The arms take turns in every round. A message is 4 KiB,
there and back, between two processes that count as two hosts.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from bench import result
from bench.collectives.arms import NativeArm
from bench.collectives.crew import Crew
from bench.flood import steps
from bench.flood.strangers import FLOODS, Stranger

P99_MOST = 2.0
WORSE_MS_MOST = 100.0
ROUNDS, MESSAGES = 10, 1000
QUICK_ROUNDS, QUICK_MESSAGES = 2, 200
COUNT = 1024  # of f32
SETTLE_S = 0.2  # until a flood runs
MEMBERS, BYSTANDER, NOBODY, SAME_USER = (0, 1), 2, 3, 4
DOORS = {"member": MEMBERS[0], "bystander": BYSTANDER}


class Member(NativeArm):
    """A process with an endpoint; two of them have a group."""

    def __init__(self, seat: int) -> None:
        super().__init__(seat % 2, 2, f"host {seat}")
        self._seat = seat
        self._held = torch.zeros(COUNT)

    def doors(self) -> tuple[str, str]:
        return self.endpoint.address, self.endpoint.path

    def exchange(self, messages: int) -> list[float]:
        """Milliseconds of each, there and back."""
        data = self._held.data_ptr()
        first = [self._send(data, COUNT), self._receive(data, COUNT)]
        acts = first if self._seat == 0 else first[::-1]
        took = []
        for _ in range(messages):
            begun = time.perf_counter()
            for act in acts:
                act(1 - self._seat)
            took.append((time.perf_counter() - begun) * 1e3)
        return took


@dataclass
class Flooded:
    """Of one kind of flood. p99 and worst: milliseconds, by whose door was flooded, one a round."""

    p99: dict[str, list[float]] = field(default_factory=lambda: {whose: [] for whose in DOORS})
    worst: dict[str, list[float]] = field(default_factory=lambda: {whose: [] for whose in DOORS})
    connections: dict[str, list[int]] = field(
        default_factory=lambda: {whose: [] for whose in DOORS}
    )

    @property
    def p99_ratio(self) -> float:
        return statistics.median(self.p99["member"]) / statistics.median(self.p99["bystander"])

    @property
    def worse_ms(self) -> float:
        return max(self.worst["member"]) - max(self.worst["bystander"])


def make(seat: int) -> object:
    return Member(seat) if seat <= BYSTANDER else Stranger()


def main() -> int:
    """Exit status 0 if every claim holds."""
    parser = result.parser("flood", __doc__, quick="few messages; no claim to be stable")
    parser.add_argument("--only", choices=PARTS, help="one part (both)")
    options = parser.parse_args()
    claims: list[result.Claim] = []
    table: list[str] = []
    loads: list[float] = []
    raw: dict[str, Any] = {}
    for part in [options.only] if options.only else PARTS:
        found = PARTS[part](options)
        claims += found.claims
        table += [*found.table, ""]
        loads += found.loads
        raw[part] = found.raw
    path = result.write("flood", claims, table, result.setting(loads), raw, quick=options.quick)
    return result.say("flood", claims, [*table, f"written to {path}"], as_json=options.json)


@dataclass
class Part:
    """What one part has found."""

    claims: list[result.Claim]
    table: list[str]
    loads: list[float]
    raw: dict[str, Any]


def measure_messages(options: argparse.Namespace) -> Part:
    rounds, messages = (QUICK_ROUNDS, QUICK_MESSAGES) if options.quick else (ROUNDS, MESSAGES)
    if options.smoke:
        rounds, messages = 1, 100
    with Crew(5, make) as crew:
        flooded, loads = run(crew, rounds, messages)
    raw = {kind: asdict(one) for kind, one in flooded.items()}
    return Part(judge(flooded), tabulated(flooded), loads, raw)


def measure_steps(options: argparse.Namespace) -> Part:
    found, loads = steps.measure(quick=options.quick, smoke=options.smoke)
    raw = {
        limit: {kind: asdict(one) for kind, one in kinds.items()} for limit, kinds in found.items()
    }
    return Part(steps.judge(found), steps.tabulated(found), loads, raw)


PARTS: dict[str, Callable[[argparse.Namespace], Part]] = {
    "messages": measure_messages,
    "steps": measure_steps,
}


def run(crew: Crew, rounds: int, messages: int) -> tuple[dict[str, Flooded], list[float]]:
    crew.all("join", crew.all("card", seats=MEMBERS), seats=MEMBERS)
    crew.one(NOBODY, "become_nobody")
    doors = {whose: crew.one(seat, "doors") for whose, seat in DOORS.items()}
    flooded = {kind: Flooded() for kind in FLOODS}
    loads = []
    for turn in range(rounds):
        for kind, one in flooded.items():
            # The other goes first in every second round.
            for whose in list(DOORS)[:: -1 if turn % 2 else 1]:
                local = kind == "descriptors"
                took, made = beside_flood(crew, kind, doors[whose][local], messages)
                one.p99[whose].append(statistics.quantiles(took, n=100)[98])
                one.worst[whose].append(max(took))
                one.connections[whose].append(made)
        loads.append(os.getloadavg()[0])
        print(f"round {turn + 1}: load {loads[-1]:.1f}", file=sys.stderr, flush=True)
    return flooded, loads


def beside_flood(crew: Crew, kind: str, place: str, messages: int) -> tuple[list[float], int]:
    """Milliseconds of each message, and how many connections came meanwhile."""
    stranger = SAME_USER if kind == "descriptors" else NOBODY
    crew.one(stranger, "begin", kind, place)
    time.sleep(SETTLE_S)
    took = crew.all("exchange", messages, seats=MEMBERS)[0]
    return took, crew.one(stranger, "end")


def judge(flooded: dict[str, Flooded]) -> list[result.Claim]:
    claims = []
    for kind, one in flooded.items():
        name = f"{kind}: p99 of a message / the bystander's"
        claims.append(result.Claim(name, one.p99_ratio, "ratio", P99_MOST))
        name = f"{kind}: worst message - the bystander's"
        claims.append(result.Claim(name, one.worse_ms, "ms", WORSE_MS_MOST))
    return claims


def tabulated(flooded: dict[str, Flooded]) -> list[str]:
    lines = ["| flood | at the door of | p99, ms | worst, ms | connections a round |"]
    lines += ["|---|---|---|---|---|"]
    for kind, one in flooded.items():
        for whose in DOORS:
            p99 = statistics.median(one.p99[whose])
            made = statistics.median(one.connections[whose])
            worst = max(one.worst[whose])
            lines.append(f"| {kind} | {whose} | {p99:.2f} | {worst:.2f} | {made:.0f} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
