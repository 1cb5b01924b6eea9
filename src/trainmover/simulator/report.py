# SPDX-License-Identifier: Apache-2.0
"""What is told of simulated seeds, and the command that plays one again."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from trainmover.controller.change.incidents import lately
from trainmover.simulator.story import Plan, Result
from trainmover.simulator.world import clock


@dataclass
class Summary:
    """Of many seeds. failed: those with a violation, and the command for each."""

    seeds: int = 0
    incidents: int = 0
    events: int = 0
    steps: int = 0
    simulated_us: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    rungs: Counter[int] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    failed: list[dict[str, Any]] = field(default_factory=list)

    def add(self, result: Result, flags: Iterable[str] = ()) -> None:
        """One more."""
        world = result.world
        self.seeds += 1
        self.incidents += result.incidents
        self.events += len(world.disk.records)
        self.steps += world.training.newest
        self.simulated_us += world.now
        self.faults.update(result.chance.count)
        if world.host is not None:
            self.rungs.update(incident.rung for incident in lately(world.host.job))
        self.ends[_end(result)] += 1
        if result.violation:
            again = command(result.plan, flags)
            seed = result.plan.seed
            self.failed.append({"seed": seed, "violation": result.violation, "again": again})

    def as_json(self, took_s: float) -> dict[str, Any]:
        """For programs."""
        return {
            "seeds": self.seeds,
            "incidents": self.incidents,
            "incidents_per_s": round(self.incidents / took_s, 1) if took_s else None,
            "events": self.events,
            "steps": self.steps,
            "simulated_s": self.simulated_us // 1_000_000,
            "took_s": round(took_s, 3),
            "faults": dict(self.faults.most_common()),
            "rungs": {str(rung): count for rung, count in sorted(self.rungs.items())},
            "ends": dict(self.ends.most_common()),
            "failed": self.failed,
        }

    def lines(self, took_s: float) -> list[str]:
        """For people."""
        each = f"{self.incidents / took_s:.0f} a second" if took_s else ""
        faults = ", ".join(f"{count} {name}" for name, count in self.faults.most_common())
        ways = ", ".join(f"{count} {_WAYS[rung]}" for rung, count in sorted(self.rungs.items()))
        return [
            f"{self.seeds} seeds, {clock(self.simulated_us)[:-7]} simulated in {took_s:.1f} s: "
            f"{self.incidents} incidents ({each}), {self.events} events, {self.steps} steps",
            f"  faults     {faults or 'none'}",
            f"  incidents  {ways or 'none'}",
            *(f"  ended      {count:6d}  {end}" for end, count in self.ends.most_common()),
        ]


_WAYS = {0: "moved", 1: "step run again", 2: "back to a snapshot", 3: "all started again"}
"""What was done on each rung."""


def _end(result: Result) -> str:
    end = result.world.ended
    if result.violation:
        return "VIOLATION"
    if end is None or not end.code:
        return "well"
    if end.code == 130:
        return "interrupted"
    for said, short in _SHORT.items():
        if said in end.text:
            return short
    return end.text.split("\n")[0]


_SHORT = {
    "must be replaced and": "no standby was left, where a job does not wait",
    " times:": "one step failed three times",
    "without a committed step": "eight recoveries in a row",
    "The job has ended after step": "state was lost with two machines, and no snapshot was there",
    "did not receive the state": "a joiner received what was not sent",
    "before the job began": "a machine was lost before the job began",
    "cannot stand in": "only standbys of another torch were left to begin with",
    "--on-nan stop": "a step reported a number that is none",
    "before the script began": "a worker ended before the script began",
}


def command(plan: Plan, flags: Iterable[str] = ()) -> str:
    """What plays one seed again, with every line of it."""
    words = ["trainmover", "simulate", "--seed", str(plan.seed), "--trace"]
    return " ".join([*words, *flags])


def failure(result: Result, flags: Iterable[str] = (), *, last: int = 25) -> list[str]:
    """What must not be, how it came to that, and the command."""
    world = result.world
    return [
        *list(world.trace)[-last:],
        f"seed {result.plan.seed} at {clock(world.now)}: {result.violation}",
        f"  {command(result.plan, flags)}",
    ]
