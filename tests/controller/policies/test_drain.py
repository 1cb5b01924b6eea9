"""Several machines give their ranks up as one change, or none of them does."""

from dataclasses import replace

import pytest
from jobs import (
    after,
    answers,
    at_boundary,
    committed,
    is_refused,
    kinds,
    loaded,
    lost,
    move,
    parked,
    prepared,
    running,
    switched,
)

from trainmover.controller import Job, decide
from trainmover.controller.change.move import who_moves
from trainmover.controller.effects import Decision
from trainmover.controller.events import DrainRequested
from trainmover.controller.policies.maintenance.lateness import usual_ms
from trainmover.controller.state import Kind, Outcome
from trainmover.server.view.causes import cause_of

FOUR = running(machines=4, standbys=2)


def drain(*machines: str, reason: str = "", at_us: int = 100, until_us: int = 0) -> DrainRequested:
    return DrainRequested(
        at_us=at_us, request="d1", machines=[*machines], reason=reason, until_us=until_us
    )


def done(job: Job) -> Job:
    """The move under way comes to its end."""
    return ended(job)[0]


def ended(job: Job) -> Decision:
    """The same, with what follows from it."""
    change = job.change
    assert change is not None
    epoch = change.epoch
    seats = [change.joiners.get(slot, name) for slot, name in enumerate(job.seats)]
    return after(
        job,
        *(parked(joiner, slot, epoch, at_us=200) for slot, joiner in change.joiners.items()),
        *(prepared(name, rank, epoch, at_us=300) for rank, name in enumerate(seats)),
        *(at_boundary(name, rank, epoch, at_us=400) for rank, name in enumerate(job.seats)),
        *(loaded(joiner, slot, epoch, at_us=500) for slot, joiner in change.joiners.items()),
        *(switched(name, rank, epoch, at_us=600) for rank, name in enumerate(seats)),
        *(committed(name, rank, epoch, gap_us=90_000) for rank, name in enumerate(seats)),
    )


def test_two_machines_are_one_change_with_one_answer() -> None:
    job, effects = decide(FOUR, drain("m3", "m2", reason="rack 7"))
    assert job.change is not None
    assert job.change.leavers == {2: "m3", 1: "m2"}
    assert sorted(job.change.joiners.values()) == ["m5", "m6"]
    assert {name: one.reason for name, one in job.cordoned.items()} == {
        "m3": "rack 7", "m2": "rack 7",
    }  # fmt: skip
    assert answers(effects) == []
    job = done(job)
    (incident,) = job.incidents
    assert incident.outcome is Outcome.DONE
    assert incident.ranks == (2, 1)
    assert set(job.seats) == {"m1", "m4", "m5", "m6"}
    assert who_moves(incident).count(" -> ") == 2


def test_the_answer_names_all_pairs() -> None:
    job, _ = decide(FOUR, drain("m3", "m2"))
    change = job.change
    assert change is not None
    seats = [change.joiners.get(slot, name) for slot, name in enumerate(job.seats)]
    job, effects = after(
        job,
        *(parked(joiner, slot, 2) for slot, joiner in change.joiners.items()),
        *(prepared(name, rank, 2) for rank, name in enumerate(seats)),
        *(at_boundary(name, rank, 2) for rank, name in enumerate(job.seats)),
        *(loaded(joiner, slot, 2) for slot, joiner in change.joiners.items()),
        *(switched(name, rank, 2) for rank, name in enumerate(seats)),
        *(committed(name, rank, 2) for rank, name in enumerate(seats)),
    )
    assert [name for name, kind in kinds(effects) if kind == "Leave"] == ["m3", "m2"]
    (answer,) = answers(effects)
    assert answer.ok
    assert "m3 -> " in answer.text
    assert "m2 -> " in answer.text


def test_more_than_there_are_standbys_is_refused_and_said_which_and_none_is_moved() -> None:
    job, effects = decide(FOUR, drain("m1", "m2", "m3"))
    (answer,) = answers(effects)
    assert not answer.ok
    assert "m1, m2, m3 were not moved: 2 standbys of 3 can take ranks" in answer.text
    assert job.change is None
    assert sorted(job.cordoned) == ["m1", "m2", "m3"]


def test_a_standby_that_is_drained_too_takes_no_ranks() -> None:
    job, _ = decide(FOUR, drain("m2", "m5"))
    assert job.change is not None
    assert job.change.joiners == {1: "m6"}


@pytest.mark.parametrize("machines", [["m5"], ["m5", "m6"]])
def test_standbys_alone_are_cordoned(machines: list[str]) -> None:
    job, effects = decide(FOUR, drain(*machines))
    assert [answer.ok for answer in answers(effects)] == [True]
    assert job.change is None
    assert sorted(job.cordoned) == machines


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (drain(), "No machine was named"),
        (drain("m2", "m9"), "There is no machine m9"),
        (drain("m2", "m3", "m2"), "m2 is named twice"),
        (drain("m2", until_us=100), "The deadline is over"),
        (drain("m2", until_us=1), "The deadline is over"),
    ],
)
def test_what_cannot_be_meant_harms_nothing(event: DrainRequested, words: str) -> None:
    is_refused(FOUR, event, words)


def test_all_machines_at_once_where_there_are_as_many_standbys() -> None:
    job = running(machines=2, standbys=2)
    job, _ = decide(job, drain("m1", "m2"))
    job = done(job)
    assert sorted(job.seats) == ["m3", "m4"]


def test_while_a_move_is_under_way_they_are_cordoned_and_not_moved() -> None:
    job, _ = decide(FOUR, move("m1"))
    job, effects = decide(job, drain("m1", "m2"))
    (answer,) = answers(effects)
    assert not answer.ok
    assert "a move is running" in answer.text
    assert sorted(job.cordoned) == ["m1", "m2"]
    assert sorted(done(job).cordoned) == ["m1", "m2"]


def test_a_move_of_other_machines_that_nobody_asked_for_is_not_waited_for() -> None:
    for names, waits in ((["m1"], True), (["m2"], False)):
        job, _ = decide(FOUR, move("m1", request=""))
        assert job.change is not None
        job, effects = decide(job, drain(*names))
        assert bool(answers(effects)) is not waits


def test_a_joiner_that_is_lost_cancels_all_of_it_and_the_answer_names_all() -> None:
    job, _ = decide(FOUR, drain("m3", "m2"))
    job, effects = decide(job, lost("m5"))
    assert job.change is None
    assert "m3, m2 were not moved" in answers(effects)[0].text


def test_how_long_moves_take_is_measured_by_moves_that_were_done() -> None:
    job = done(decide(FOUR, drain("m3"))[0])
    (quick,) = job.incidents
    slow = {**quick.marks, "first_step": 3_000_000}
    cancelled = replace(quick, outcome=Outcome.CANCELLED, marks=slow)
    recovery = replace(quick, kind=Kind.RECOVERY, marks=slow)
    assert usual_ms(replace(job, incidents=(quick, cancelled, recovery))) == usual_ms(job)


def test_a_deadline_that_moves_of_this_job_would_miss_is_said_at_once() -> None:
    job, _ = decide(FOUR, drain("m3", at_us=100, until_us=10_000_000))
    assert job.incidents[-1].cause == "a move was asked for"
    assert cause_of(job.incidents[-1]) == "drain"
    job = done(job)
    slow = {**job.incidents[0].marks, "first_step": 3_000_000}
    job = replace(job, incidents=(replace(job.incidents[0], marks=slow),))
    in_time, _ = decide(job, drain("m2", at_us=100, until_us=4_000_100))
    late, _ = decide(job, drain("m2", at_us=100, until_us=1_000_100, reason="spot"))
    assert "late" not in in_time.incidents[-1].cause
    assert "spot; it may come too late: moves of this job take 3.0 s, and 1.0 s are left" in (
        late.incidents[-1].cause
    )
