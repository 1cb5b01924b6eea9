"""What is found beside a job, and when: `watchers.txt`, as `tests.transcript` has it.

Beside each line stands what it found, and what it comes to.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jobs
import msgspec
import paces
import pytest
import test_ways

from tests.transcript import check, shown, titles
from trainmover.controller import Job, events
from trainmover.controller.policies.anomalies import drift, filling, late
from trainmover.controller.policies.anomalies.look import Look
from trainmover.controller.policies.stragglers import excess
from trainmover.controller.state import Incident, Kind

EVERY = titles(Path(__file__).parent)


def crept(it: drift.Drift, steps: int, own: float) -> list[tuple[int, float]]:
    """After which of so many more steps, each this much of a usual one, it has said so."""
    told = ((step, it.add(own * 1000, 1000)) for step in range(1, steps + 1))
    return [(step, by) for step, by in told if by is not None]


class Rounds:
    """What is found of a job whose machines say every two seconds how much memory is left."""

    def __init__(self, job: Job) -> None:
        self.job, self.look, self.now_s = job, Look(), 0
        self.events: list[events.AnomalyFound] = []

    def pass_by(
        self, rounds: int, late: str = "", free: Callable[[int], int] = lambda s: 50
    ) -> None:
        """late: who speaks once in a round; free: of m1, billions of bytes of a hundred."""
        for _ in range(5 * rounds):
            self.now_s += 2
            for name in self.job.machines:
                left = free(self.now_s) if name == "m1" else 50
                if name != late or self.now_s % 10 == 8:
                    self.look.heard(name, left * 10**9, 100 * 10**9, self.now_s * 1_000_000)
            self.events += self.look.look(self.job, self.now_s * 1_000_000)

    def took(self, machine: str, steps: int, own: float) -> None:
        for _ in range(steps):
            self.look.took(machine, 1, own * 1000, 1000)


def unwatched(job: Job) -> Job:
    return replace(job, spec=msgspec.structs.replace(job.spec, anomalies="off"))


def lost_often(machine: str, times: int, *, others: int = 1, machines: int = 5) -> Job:
    """So many incidents have begun on it, and some on another; many more were no machine's."""
    job = jobs.running(machines=machines, standbys=1)
    whose = [machine] * times + ["m1"] * others
    known = [_incident(name) for name in (*whose, *[None] * 9)]
    return replace(job, incidents=(*known, *[_incident("m3", Kind.MOVE)] * 9))


def _incident(machine: str | None, kind: Kind = Kind.RECOVERY) -> Incident:
    return Incident(1, kind, machine, None, (), "link broke", 1, 2, marks={"detect": 1})


WORDS: dict[str, Any] = {
    **vars(jobs), **vars(paces), **vars(test_ways), **vars(excess), **vars(drift), **vars(filling),
    **vars(late), "crept": crept, "Rounds": Rounds, "unwatched": unwatched,
    "lost_often": lost_often,
}  # fmt: skip


def _happens(it: Any, line: str) -> tuple[Any, Iterator[str]]:
    known = len(_found(it))
    answer = eval(line, {**WORDS, "it": it})
    said = [] if answer is None or answer is it else [f"= {shown(answer)}"]
    return it, iter([*said, *map(shown, _found(it)[known:])])


def _found(it: Any) -> list[Any]:
    """All that a job was told by those who watch it."""
    return [*getattr(it, "suspected", ()), *getattr(it, "events", ())]


@pytest.mark.parametrize(("file", "title"), EVERY, ids=[title for _, title in EVERY])
def test_what_is_found_is_what_is_written(
    file: Path, title: str, request: pytest.FixtureRequest
) -> None:
    check(file, title, WORDS, _happens, anew=request.config.getoption("--rewrite"))
