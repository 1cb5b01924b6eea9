"""Who goes where machines do not reach each other: as by comparing all with all, and sooner."""

import sys
from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import RUNNING
from test_scale import job_of

from trainmover.controller import Job
from trainmover.controller.standstill.probing import Ways, _missing, _to_go
from trainmover.controller.standstill.stuck import Probing
from trainmover.ids import Epoch, MachineId

NAMES = [MachineId(f"m{number}") for number in range(1, 7)]
WAYS = [(a, b) for a in NAMES for b in NAMES if a != b]


def job_with(standbys: int) -> Job:
    few = RUNNING.machines["m1"]
    machines = {name: replace(few, id=name) for name in NAMES}
    return replace(RUNNING, machines=machines, seats=tuple(NAMES[: len(NAMES) - standbys]))


def compared(job: Job, asked: Collection[MachineId], missing: Ways) -> MachineId | None:
    """The rule, as it is said."""
    seats = set(job.seats)

    def whole(machines: Collection[MachineId]) -> bool:
        return not any(a in machines and b in machines for a, b in missing)

    cut = {name for way in missing if seats.issuperset(way) for name in way}
    lost = {name: sum(name in way for way in missing) for name in seats}
    standbys = [name for name in asked if name not in seats]
    mends = {name for name in cut if any(whole(seats - {name} | {s}) for s in standbys)}
    fewer = {name for name in cut if lost[name] > min(lost.values())}
    return min(
        mends or fewer, key=lambda name: (-lost[name], job.machines[name].place), default=None
    )


@given(missing=st.frozensets(st.sampled_from(WAYS), max_size=12), standbys=st.integers(0, 3))
def test_it_is_who_would_be_found_by_comparing_all(missing: Ways, standbys: int) -> None:
    job = job_with(standbys)
    assert _to_go(job, NAMES, missing) == compared(job, NAMES, missing)


@given(reached=st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES))))
def test_ways_that_nobody_has_told_of_are_missing(
    reached: dict[MachineId, list[MachineId]],
) -> None:
    probing = Probing(1, Epoch(1), "", 0, tuple(NAMES), reached=reached)
    assert _missing(job_with(0), probing) == {
        (a, b) for a, b in WAYS if b not in reached.get(a, ())
    }


def calls(machines: int) -> int:
    """Of one answer, where half of the machines do not reach the other half."""
    job = job_of(machines, alike=True)
    asked = tuple(job.machines)
    half = set(asked[: machines // 2])
    reached = {one: [o for o in asked if (o in half) == (one in half)] for one in asked}
    probing = Probing(1, Epoch(1), "", 0, asked, reached=reached)
    count = 0

    def called(frame: object, event: str, _: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        _to_go(job, asked, _missing(job, probing))
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("few", [50])
def test_it_costs_the_square_of_the_machines(few: int) -> None:
    assert calls(4 * few) <= 20 * calls(few)
