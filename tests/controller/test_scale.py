"""A job of a thousand machines is decided for nearly as quickly, event by event, as one of fifty,
and no order grows with their number."""

import sys
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
from jobs import (
    at_boundary,
    loaded,
    lost,
    parked,
    position,
    running,
    said,
    switched,
    vault,
)

from trainmover.controller import Job, decide
from trainmover.controller.effects import Send
from trainmover.controller.facts import Facts, Ranks
from trainmover.controller.state import Cut, Machines
from trainmover.protocol import messages as m

Play = Iterator[tuple[Job, int]]
SMALL, LARGE = 50, 500
SLOWER = 30
"""At most, for ten times the events: each copies and compares what grows with the machines."""
ORDER_BYTES_MAX = 2000


def job_of(machines: int, *, alike: bool) -> Job:
    """All ranks are recorded, one standby is warm. Not alike: no two ranks hold the same, and there
    is a complete cut."""
    few = running(machines=2, standbys=1)
    seat, spare, first = few.machines["m1"], few.machines["m3"], few.recorded[0]
    names = [f"m{number + 1}" for number in range(machines + 1)]
    all_machines = {
        name: replace(base, id=name, vault=f"10.0.0.1:{number}", workers={0: f"{name}/0"})
        for number, name in enumerate(names)
        for base in [spare if number == machines else seat]
    }
    ranks = range(machines)
    told = {
        rank: msgspec.structs.replace(first, rank=rank, digest="d" if alike else f"d{rank}")
        for rank in ranks
    }
    cut = Cut(
        step=5,
        vaults={rank: all_machines[names[(rank + 1) % machines]].vault for rank in ranks},
        workers={rank: f"{names[rank]}/0" for rank in ranks},
        bytes=1,
        cost_us=1,
    )
    return replace(
        few,
        spec=msgspec.structs.replace(few.spec, machines=machines),
        machines=Machines(all_machines),
        seats=tuple(names[:-1]),
        attached=Ranks(ranks),
        recorded=Facts(told),
        snapshot_every=5,
        cut=None if alike else cut,
    )


def a_loss(job: Job) -> Play:
    """The second machine is lost, in place or back to the cut; after each event the job, and the
    bytes of the largest order."""
    names, spare = list(job.seats), f"m{len(job.seats) + 1}"
    living = [(rank, name) for rank, name in enumerate(names) if rank != 1]
    joined = [(rank, spare if rank == 1 else name) for rank, name in enumerate(names)]
    events = [lost("m2")]
    events += [position(name, rank, 2) for rank, name in living]
    events += [
        vault(name, 2, {1: [8]} if rank == 2 else {}) for rank, name in [*living, (1, spare)]
    ]
    if job.cut is None:
        events += [at_boundary(name, rank, 2) for rank, name in living]
        events += [parked(spare, 1, 2), loaded(spare, 1, 2)]
        events += [switched(name, rank, 2) for rank, name in joined]
    else:
        events += [said(name, m.Left()) for _, name in living]
        for fact in (parked, loaded, switched):
            events += [fact(name, rank, 3) for rank, name in joined]
    for event in events:
        job, effects = decide(job, event)
        sizes = [len(m.encode(e.order)) for e in effects if isinstance(e, Send)]
        yield job, max(sizes, default=0)
    assert job.change is None
    assert job.seats[1] == spare


def calls(machines: int, *, alike: bool) -> int:
    """How many the decisions take, turns of generators among them: no clock decides."""
    count = 0

    def called(frame: object, event: str, _: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    play = a_loss(job_of(machines, alike=alike))
    sys.setprofile(called)
    try:
        sizes = [size for _, size in play]
    finally:
        sys.setprofile(None)
    assert max(sizes) <= ORDER_BYTES_MAX
    return count


@pytest.mark.parametrize("alike", [True, False], ids=["in place", "back to a cut"])
def test_a_loss_among_many_machines_costs_little_more_for_each(alike: bool) -> None:
    few, many = calls(SMALL, alike=alike), calls(LARGE, alike=alike)
    print(f"{many} calls of {LARGE} machines, {few} of {SMALL}: {many / few:.1f}")
    assert many <= SLOWER * few
