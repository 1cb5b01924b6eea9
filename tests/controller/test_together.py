"""What all ranks of a machine say at once is decided as if they had said it one after the other."""

from typing import Any

import pytest

from tests.controller.jobs import (
    after,
    answers,
    kinds,
    loaded,
    lost,
    move,
    parked,
    running,
    said,
    vault,
)
from trainmover.controller import Job, decide
from trainmover.controller.effects import Effect
from trainmover.controller.events import WorkersSaid
from trainmover.controller.state import Outcome
from trainmover.protocol import messages as m

NPROC = 2


def position(rank: int) -> m.Position:
    return m.Position(rank=rank, epoch=2, committed=7, gate=0)


def at_boundary(rank: int) -> m.AtBoundary:
    return m.AtBoundary(rank=rank, epoch=2, committed=7)


def switched(rank: int) -> m.Switched:
    return m.Switched(rank=rank, epoch=2)


def prepared(rank: int) -> m.Prepared:
    return m.Prepared(rank=rank, epoch=2, reason="no memory" if rank == 3 else "")


def first(rank: int) -> m.Committed:
    rows = [m.Row(step=8, at_us=0, values={})]
    return m.Committed(rank=rank, epoch=2, rows=rows, first=True)


def say(job: Job, machine: str, slot: int, make: Any) -> tuple[Job, tuple[Effect, ...]]:
    """Both ways; the one that is in one event."""
    facts = [make(slot * NPROC + local) for local in range(NPROC)]
    one_by_one = after(job, *(said(machine, f, local_rank=at) for at, f in enumerate(facts)))
    at_once = decide(job, WorkersSaid(at_us=0, machine=machine, facts=facts))
    assert at_once == one_by_one
    return at_once


def test_a_whole_recovery() -> None:
    job, _ = decide(running(nproc=NPROC), lost("m2"))
    for name, slot in (("m1", 0), ("m3", 2)):
        job, _ = say(job, name, slot, position)
    records: dict[str, dict[int, list[int]]] = {"m1": {2: [8], 3: [8]}, "m3": {}, "m4": {}}
    job, effects = after(job, *(vault(name, 2, its) for name, its in records.items()))
    assert ("m1", "Verdict") in kinds(effects)
    for name, slot in (("m1", 0), ("m3", 2)):
        job, _ = say(job, name, slot, at_boundary)
    job, effects = after(job, *(parked("m4", 2 + at, 2, local_rank=at) for at in (0, 1)))
    assert ("m4", "Switch") in kinds(effects)
    job, _ = after(job, loaded("m4", 2, 2), loaded("m4", 3, 2))
    for name, slot in (("m1", 0), ("m4", 1), ("m3", 2)):
        job, effects = say(job, name, slot, switched)
    assert ("m4", "Go") in kinds(effects)
    for name, slot in (("m1", 0), ("m4", 1), ("m3", 2)):
        job, _ = say(job, name, slot, first)
    assert job.incidents[-1].outcome is Outcome.DONE


def test_a_move_that_fails_on_the_last_of_them() -> None:
    job, _ = decide(running(nproc=NPROC), move("m2"))
    job, _ = after(job, *(parked("m4", 2 + at, 2, local_rank=at) for at in (0, 1)))
    job, effects = say(job, "m4", 1, prepared)
    assert [one.ok for one in answers(effects)] == [False]
    assert job.change is None


@pytest.mark.parametrize("machine", ["m3", "m9"])
def test_who_speaks_for_others_or_is_not_in_the_job_is_not_heard(machine: str) -> None:
    job, _ = decide(running(nproc=NPROC), lost("m2"))
    assert say(job, machine, 0, position) == (job, ())
