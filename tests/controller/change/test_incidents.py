"""Book-keeping: marks, phases, downtime, outcome."""

from dataclasses import replace

import pytest
from jobs import (
    AT_BOUNDARY,
    DRAINED,
    MOVE_ALL_SWITCHED,
    MOVE_BINDS,
    MOVE_SWITCHES,
    MOVED,
    RECOVERED,
    RUNNING,
    after,
    answers,
    begun,
    committed,
    decide,
    exited,
    failed,
    finished,
    interrupted,
    kill,
    lost,
    parked,
    past,
    running,
)

from trainmover.controller.change.incidents import found, incident
from trainmover.controller.events import EVENTS, StoreMoved
from trainmover.controller.state import Job, Kind, Outcome, Trigger

NEW_SEATS = ("m1", "m4", "m3")


def first_commits(*gaps_us: int | None, median_us: int | None = 2_000) -> tuple[object, ...]:
    """The first commits of epoch 2, at 600."""
    return tuple(
        committed(name, rank, 2, gap_us=gap, median_us=median_us, at_us=600)
        for rank, (name, gap) in enumerate(zip(NEW_SEATS, gaps_us, strict=True))
    )


def test_an_incident_is_found_by_its_number_among_newer_ones() -> None:
    job = replace(RUNNING, incidents=past())
    assert [incident(job, one.number) for one in past()] == [*past()]
    assert found(job, 99) is None


def test_the_phases_of_a_recovery_follow_each_other() -> None:
    job, _ = after(RECOVERED, *first_commits(9_000, None, 9_000))
    assert list(job.incidents[0].marks.items()) == [
        ("heard", 40), ("detect", 100), ("drain", 200), ("verdict", 300), ("bind", 400),
        ("state", 450), ("switchover", 500), ("first_step", 600),
    ]  # fmt: skip
    assert job.incidents[0].phases_ms == {
        "detect": 0.06, "drain": 0.1, "verdict": 0.1, "bind": 0.1, "state": 0.05,
        "switchover": 0.05, "first_step": 0.1,
    }  # fmt: skip


def test_the_phases_of_a_move_follow_each_other() -> None:
    job, _ = after(MOVED, *first_commits(9_000, None, 9_000))
    assert list(job.incidents[0].phases_ms) == [
        "bind", "prepare", "pause", "state", "switchover", "first_step",
    ]  # fmt: skip
    assert sum(job.incidents[0].phases_ms.values()) == 0.5


def test_a_joiner_that_is_ready_late_shows_in_its_phase() -> None:
    job, _ = after(RUNNING, lost("m2", at_us=100, heard_us=40), *DRAINED, *AT_BOUNDARY)
    job, _ = decide(job, parked("m4", 1, 2, at_us=9_300))
    assert job.incidents[0].phases_ms["bind"] == 9.0


@pytest.mark.parametrize(
    ("trigger", "job", "events"),
    [
        (Trigger.LOST, RUNNING, [lost("m2")]),
        (Trigger.ENDED, RUNNING, [exited("m2")]),
        (Trigger.LINK, RUNNING, [interrupted("m2", 1, 1)]),
        (Trigger.STANDBY, running(standbys=2), [lost("m2"), failed("m5", 1)]),
        (Trigger.STORE, MOVE_SWITCHES, [StoreMoved(at_us=9, address="127.0.0.1:9")]),
        (Trigger.LOST, begun(), [lost("m2")]),
    ],
)
def test_a_recovery_says_what_has_set_it_off(
    trigger: Trigger, job: Job, events: list[EVENTS]
) -> None:
    assert after(job, *events)[0].incidents[-1].trigger is trigger


def test_a_machine_whose_process_ends_before_it_is_lost_is_one_incident() -> None:
    """An agent that is interrupted ends its workers first."""
    job, _ = after(RUNNING, exited("m2", at_us=100), lost("m2", at_us=300, heard_us=200))
    (one,) = job.incidents
    assert (one.trigger, one.lost, one.outcome) == (Trigger.LOST, ("m2",), Outcome.OPEN)
    assert one.marks == {"heard": 100, "detect": 100}


def test_a_loss_of_another_machine_supersedes_the_incident_under_way() -> None:
    job, _ = after(running(standbys=2), exited("m2"), lost("m3"))
    assert [one.outcome for one in job.incidents] == [Outcome.SUPERSEDED, Outcome.OPEN]


def test_downtime_is_the_longest_stand_still_of_a_stayer() -> None:
    job, _ = after(RECOVERED, *first_commits(52_000, None, 32_000))
    assert job.incidents[0].downtime_ms == 50.0


def test_downtime_without_a_median_is_the_whole_gap_and_never_negative() -> None:
    job, _ = after(RECOVERED, *first_commits(5_000, None, 4_000, median_us=None))
    assert job.incidents[0].downtime_ms == 5.0
    job, _ = after(RECOVERED, *first_commits(1_000, None, 1_500))
    assert job.incidents[0].downtime_ms == 0.0


def test_an_answered_move_names_its_pause() -> None:
    _, effects = after(MOVED, *first_commits(52_000, None, 32_000))
    assert answers(effects)[0].text == "m2 -> m4 after step 7: pause 50 ms; rank 1 kept."


def test_an_incident_is_done_when_every_rank_has_committed_in_its_epoch() -> None:
    job, _ = after(RECOVERED, *first_commits(9_000, None, 9_000)[:2])
    assert job.incidents[0].outcome is Outcome.OPEN
    job, _ = decide(job, committed("m3", 2, 1))
    assert job.incidents[0].outcome is Outcome.OPEN
    job, _ = decide(job, committed("m3", 2, 2))
    assert job.incidents[0].outcome is Outcome.DONE


def test_a_rank_that_has_finished_will_never_commit() -> None:
    job, _ = after(RECOVERED, finished("m3", 2), *first_commits(9_000, None, 9_000)[:2])
    assert job.incidents[0].outcome is Outcome.DONE


def test_a_rank_that_had_finished_before_counts_as_well() -> None:
    job, _ = after(RUNNING, finished("m1", 0, step=7), lost("m2"), *DRAINED, *AT_BOUNDARY)
    job, _ = after(job, parked("m4", 1, 2), *MOVE_ALL_SWITCHED)
    job, _ = after(job, finished("m3", 2, step=7), finished("m4", 1, step=7))
    assert (job.incidents[0].outcome, job.incidents[0].note) == (Outcome.DONE, "")


def test_commits_without_an_incident_only_raise_the_floor() -> None:
    job, effects = decide(RUNNING, committed("m1", 0, 1, step=40))
    assert (job.committed, job.incidents, effects) == (40, (), ())
    job, _ = decide(job, committed("m1", 0, 1, step=39))
    assert job.committed == 40


def test_what_an_incident_says_of_a_loss() -> None:
    incident = RECOVERED.incidents[0]
    assert (incident.kind, incident.rung, incident.epoch) == (Kind.RECOVERY, 1, 2)
    assert (incident.machine, incident.joiner, incident.ranks) == ("m2", "m4", (1,))
    assert (incident.cause, incident.step) == ("m2 was lost: link broke", 7)
    assert [c.rank for c in incident.certificates] == [1]


def test_what_an_incident_says_of_a_move() -> None:
    incident = MOVED.incidents[0]
    assert (incident.kind, incident.rung, incident.epoch) == (Kind.MOVE, 0, 2)
    assert (incident.machine, incident.joiner, incident.ranks) == ("m2", "m4", (1,))
    assert (incident.marks["begun"], incident.step) == (100, 7)


def test_what_an_incident_says_of_a_broken_link() -> None:
    incident = decide(RUNNING, interrupted("m1", 0, 1))[0].incidents[0]
    assert (incident.machine, incident.joiner, incident.ranks) == (None, None, ())
    assert incident.cause == "rank 0 lost a link (reset by peer)"


def test_an_overtaken_move_is_cancelled_and_a_new_incident_begins() -> None:
    job, _ = decide(MOVE_BINDS, lost("m2"))
    first, second = job.incidents
    assert first.outcome is Outcome.CANCELLED
    assert first.note == "overtaken: m2 was lost: link broke"
    assert (second.number, second.outcome, second.joiner) == (2, Outcome.OPEN, "m4")


def test_a_drill_counts_from_the_moment_of_the_kill() -> None:
    job, _ = decide(RUNNING, kill("m2", at_us=33))
    job, _ = decide(job, lost("m2", at_us=100, heard_us=40))
    assert job.incidents[0].marks == {"heard": 33, "detect": 100}


def test_a_crash_is_heard_and_detected_at_once() -> None:
    job, _ = decide(RUNNING, exited("m2", at_us=70))
    assert job.incidents[0].marks == {"heard": 70, "detect": 70}


def test_certificates_of_a_doubled_fact_do_not_move_the_incident_on() -> None:
    job, _ = after(RECOVERED, *MOVE_ALL_SWITCHED)
    assert job == RECOVERED
