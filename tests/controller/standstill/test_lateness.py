"""Who is late at a boundary is who has taken longer than it said, and has a process to end."""

from dataclasses import replace

import msgspec
import pytest
from jobs import BOUNDARY, DRAINS, MOVE_BINDS, MOVE_PAUSES, RUNNING, at_boundary, decide

from trainmover.controller import Job
from trainmover.controller.change.seats import with_machine
from trainmover.controller.standstill.lateness import (
    LEAVES_US,
    LOOK_US,
    holds_all,
    late_leavers,
    late_ranks,
    looks_due,
)
from trainmover.controller.standstill.stuck import Disturbed
from trainmover.controller.state import MachineState

SINCE_US, PATIENCE_MS = 1_000_000, 300
AT_US = SINCE_US + 1000 * PATIENCE_MS


def patient(job: Job = BOUNDARY, **patience_ms: int) -> Job:
    """m1 and m3, with ranks 0 and 2, have said for how long they may take; since `SINCE_US`."""
    assert job.change is not None
    said = {
        rank: msgspec.structs.replace(one, patience_ms=patience_ms.get(f"r{rank}", PATIENCE_MS))
        for rank, one in job.change.positions.items()
    }
    return replace(job, change=replace(job.change, positions=said, since_us=SINCE_US))


def test_a_rank_is_late_from_the_moment_that_it_has_named() -> None:
    assert late_ranks(patient(), AT_US - 1000) == []
    assert late_ranks(patient(), AT_US) == [0, 2]
    assert late_ranks(patient(r2=2 * PATIENCE_MS), AT_US) == [0]


def test_one_that_has_named_none_may_take_as_long_as_it_likes() -> None:
    assert late_ranks(patient(r0=0, r2=0), 100 * AT_US) == []
    assert late_ranks(patient(r0=0), 100 * AT_US) == [2]


def test_who_is_there_is_not_late() -> None:
    job, _ = decide(BOUNDARY, at_boundary("m1", 0, 2))
    assert late_ranks(patient(job), AT_US) == [2]


def test_nobody_is_late_where_nobody_is_waited_for() -> None:
    for job in (RUNNING, DRAINS, MOVE_BINDS, MOVE_PAUSES):
        assert late_ranks(job, 10**12) == []
        assert late_leavers(job, 10**12) == []
    assert BOUNDARY.change is not None
    begun = patient()
    assert begun.change is not None
    assert late_ranks(replace(begun, change=replace(begun.change, since_us=0)), AT_US) == []


def test_without_a_process_nobody_can_be_ended() -> None:
    assert late_ranks(with_machine(patient(), "m3", pids={}), AT_US) == [0]
    down = with_machine(patient(), "m3", state=MachineState.DOWN)
    assert late_ranks(down, AT_US) == [0]


def back(job: Job = BOUNDARY) -> Job:
    """All go back, and have been told to leave."""
    job = patient(job)
    assert job.change is not None
    job = replace(job, change=replace(job.change, back=True))
    for name in ("m1", "m3"):
        job = with_machine(job, name, state=MachineState.LEAVING, said=frozenset())
    return job


def test_where_all_go_back_it_is_who_has_not_unwound() -> None:
    assert late_ranks(back(), AT_US) == [0, 2]
    left = with_machine(back(), "m1", said=frozenset({0}))
    assert late_ranks(left, AT_US) == [2]
    idle = with_machine(back(), "m1", state=MachineState.IDLE)
    assert late_ranks(idle, AT_US) == [2]


def leaves(job: Job = BOUNDARY) -> Job:
    """m4, which is to take rank 1, has not left what it was."""
    return with_machine(patient(job), "m4", state=MachineState.LEAVING, said=frozenset())


def test_a_joiner_that_never_leaves_what_it_was_is_late_in_the_end() -> None:
    late_us = SINCE_US + LEAVES_US
    assert late_leavers(leaves(), late_us - 1) == []
    assert late_leavers(leaves(), late_us) == [("m4", 0, 1)]


@pytest.mark.parametrize(
    "known", [{"said": frozenset({0})}, {"pids": {}}, {"state": MachineState.IDLE}]
)
def test_nor_one_that_has_left_or_has_no_process(known: dict[str, object]) -> None:
    assert late_leavers(with_machine(leaves(), "m4", **known), 10**12) == []  # type: ignore[arg-type]


def test_who_takes_its_own_slot_again_is_no_leaver() -> None:
    job = leaves()
    assert late_leavers(replace(job, seats=("m1", "m4", "m3")), 10**12) == []


def test_only_what_depends_on_time_is_looked_at_and_not_all_the_time() -> None:
    assert not looks_due(RUNNING, 0, 10**12)
    stops = {("m1", 0): Disturbed(1, "stopped", 0)}
    stopped = replace(RUNNING, hanging=replace(RUNNING.hanging, disturbed=stops))
    assert not looks_due(stopped, 5, 5 + LOOK_US - 1)
    assert looks_due(stopped, 5, 5 + LOOK_US)


def test_a_change_has_all_wait_once_it_pauses_them() -> None:
    held = [holds_all(job) for job in (RUNNING, MOVE_BINDS, MOVE_PAUSES, DRAINS, BOUNDARY)]
    assert held == [False, False, True, True, True]
