"""Collectives that a loss cuts short outside of steps, and what scripts make of what they gave."""

from dataclasses import replace

import pytest
from jobs import (
    BOUNDARY,
    DRAINS,
    MOVED,
    RECOVERY_SWITCHES,
    RUNNING,
    after,
    at_boundary,
    ended,
    lost,
    orders,
    parked,
    position,
    raised,
    said,
    up,
    vault,
)
from test_cuts import m_replace, with_a_cut

from trainmover.controller import Job
from trainmover.controller.change.going_back import FRESH_STEPS_MAX, go_back
from trainmover.controller.clock import tick_due
from trainmover.controller.effects import Effect
from trainmover.controller.events import Tick
from trainmover.controller.state import MachineState, Outcome, Phase
from trainmover.protocol import messages as m
from trainmover.server.view.sentences import sentence

BETWEEN = said("m1", m.BetweenSteps(rank=0, step=4, where="train.py line 88"))


def misled(machine: str, rank: int, epoch: int, step: int = 7) -> object:
    return said(machine, m.AtBoundary(rank=rank, epoch=epoch, committed=step, misled=True))


def cut_short(job: Job, step: int = 7) -> tuple[Job, tuple[Effect, ...]]:
    """m2 is lost while m3 is in a collective between two steps."""
    job, _ = after(job, lost("m2", at_us=100))
    epoch = job.epoch_last
    return after(
        job,
        *(position(name, rank, epoch, step) for name, rank in (("m1", 0), ("m3", 2))),
        *(vault(name, epoch, {1: [step + 1]}) for name in ("m1", "m3", "m4")),
        at_boundary("m1", 0, epoch, step),
        misled("m3", 2, epoch, step),  # type: ignore[arg-type]
        parked("m4", 1, epoch),
    )


def amended(job: Job, **changes: int) -> Job:
    """With another newest incident."""
    *earlier, last_one = job.incidents
    return replace(job, incidents=(*earlier, replace(last_one, **changes)))


# --- whoever was misled goes back -----------------------------------------------------------------


def test_all_go_back_to_the_cut_there_is() -> None:
    job, _ = cut_short(with_a_cut()[0])
    assert job.change is not None
    assert (job.change.back, job.committed, job.incidents[-1].rung) == (True, 5, 2)


@pytest.mark.parametrize("asked", [None, 0])
def test_without_a_cut_a_young_job_starts_from_the_beginning(asked: int | None) -> None:
    young = replace(RUNNING, spec=m_replace(RUNNING.spec, snapshot_every=asked))
    job, effects = cut_short(young)
    assert orders(effects, m.StartWorkers).keys() == {"m1", "m3", "m4"}, "in fresh processes"
    assert not orders(effects, m.Switch), "nobody trains on with a value of its own"
    (one,) = job.incidents
    assert (one.rung, one.outcome, one.redone) == (3, Outcome.OPEN, 7)
    assert "what rank 2 has done between two steps cannot be done again" in one.why_rung
    assert (job.phase, job.seats) == (Phase.STARTING, ("m1", "m4", "m3"))
    before = amended(job, rung=1)
    assert "all start again from the beginning" in sentence(before, BETWEEN, job).text
    job, effects = after(job, *(up(name) for name in job.seats))
    assert orders(effects, m.RunRank).keys() == set(job.seats)
    assert job.epoch == one.epoch, "the first commits of this epoch end the incident"


def test_an_old_job_ends_and_says_why() -> None:
    _, effects = cut_short(RUNNING, step=FRESH_STEPS_MAX + 1)
    text = ended(effects).text
    assert "what rank 2 has done between two steps cannot be done again" in text
    assert f"ended after step {FRESH_STEPS_MAX + 1}: there was no snapshot" in text


def test_a_young_job_ends_where_nobody_can_take_what_is_lost() -> None:
    job, _ = cut_short(RUNNING)
    assert job.phase is Phase.STARTING
    lone = after(RUNNING, lost("m4"))[0]
    lone = replace(lone, spec=m_replace(lone.spec, wait_s=60))
    job, _ = after(lone, lost("m2", at_us=100))
    back, effects = go_back(job, "a rank was misled", 200, afresh=True)
    assert back.phase is Phase.ENDED
    assert "there was no snapshot of all ranks yet" in ended(effects).text


def test_it_does_not_start_again_for_ever() -> None:
    used = replace(RUNNING, restarts=RUNNING.spec.restarts_max)
    assert "has used its 3 restarts" in ended(cut_short(used)[1]).text


def test_what_is_changed_before_a_step_is_said() -> None:
    changes = m.BetweenSteps(rank=0, step=4, where="train.py line 88", changed="`model.weight`")
    event = said("m1", changes)
    job, _ = after(RUNNING, event)
    text = sentence(RUNNING, event, job).text
    assert "changes `model.weight` between the fetch of a batch and its step" in text
    assert "(train.py line 88): snapshots are kept" in text


# --- a job that makes them has cuts ---------------------------------------------------------------


def test_the_first_such_collective_is_said_once() -> None:
    job, effects = after(RUNNING, BETWEEN)
    assert not orders(effects, m.KeepSnapshots), "they have begun already"
    said_ = sentence(RUNNING, BETWEEN, job)
    assert not said_.loud
    assert "train.py line 88" in said_.text
    again, effects = after(job, BETWEEN)
    assert (again, effects) == (job, ())


def test_if_they_are_off_the_run_says_that_it_depends_on_them() -> None:
    spec = m_replace(RUNNING.spec, snapshot_every=0)
    off = replace(RUNNING, spec=spec, snapshot_every=0)
    job, effects = after(off, BETWEEN)
    assert not orders(effects, m.KeepSnapshots)
    said_ = sentence(off, BETWEEN, job)
    assert said_.loud
    assert "snapshots are off (--snapshots)" in said_.text


def test_who_joins_holds_no_snapshot_so_a_cut_follows() -> None:
    switched = (said(n, m.Switched(rank=r, epoch=2)) for r, n in enumerate(("m1", "m4", "m3")))
    _, effects = after(RECOVERY_SWITCHES, *switched)
    keep = orders(effects, m.KeepSnapshots)
    assert keep == dict.fromkeys(("m1", "m3", "m4"), m.KeepSnapshots(every=5, now=True))


# --- what scripts raise of it ---------------------------------------------------------------------


def garbage(machine: str, rank: int) -> object:
    fact = m.Raised(rank=rank, step=7, error="EOFError: ran out", traceback="T", misled=True)
    return said(machine, fact, at_us=300)


def test_what_a_collective_cut_short_makes_a_script_raise_ends_no_job() -> None:
    """It may be said before the loss is known."""
    job, effects = after(RUNNING, garbage("m1", 0))  # type: ignore[arg-type]
    assert job.phase is Phase.RUNNING
    assert orders(effects, m.Interrupt).keys() == {"m1", "m2", "m3", "m4"}
    assert job.machines["m1"].state is MachineState.DOWN
    assert job.change is not None
    assert job.change.joiners == {0: "m4"}
    assert "had left when it was cut short" in job.incidents[-1].cause
    job, _ = after(job, lost("m2"))
    assert job.change is not None
    assert set(job.change.joiners) == {0, 1}, "and its machine takes the rank that is lost then"


@pytest.mark.parametrize("job", [DRAINS, BOUNDARY], ids=["drains", "boundary"])
def test_nor_does_what_is_raised_while_its_epoch_is_left(job: Job) -> None:
    job, effects = after(job, raised("m3", 2))
    assert job.phase is Phase.RUNNING
    assert orders(effects, m.Interrupt)


def test_what_is_raised_at_the_boundary_or_undisturbed_ends_the_job() -> None:
    there, _ = after(BOUNDARY, at_boundary("m3", 2, 2))
    assert "raised ValueError" in ended(after(there, raised("m3", 2))[1]).text
    assert "raised ValueError" in ended(after(RUNNING, raised("m3", 2))[1]).text


# --- a rank that goes round for ever --------------------------------------------------------------

SPINS = m.Position(rank=2, epoch=2, committed=7, gate=0, patience_ms=60_000)


def spinning(job: Job = RUNNING) -> Job:
    """m2 is lost, and m3 never comes to the boundary."""
    return after(
        job,
        lost("m2", at_us=100),
        position("m1", 0, 2),
        said("m3", SPINS),
        *(vault(name, 2, {1: [8]}, at_us=200) for name in ("m1", "m3", "m4")),
        at_boundary("m1", 0, 2, at_us=300),
    )[0]


def ticked(job: Job, at_us: int) -> tuple[Job, tuple[Effect, ...]]:
    return after(job, Tick(at_us=at_us))


def test_who_does_not_come_to_the_boundary_in_time_is_ended_with_its_stack() -> None:
    job = spinning()
    assert not tick_due(job, 0, 50_000_000)
    assert ticked(job, 50_000_000)[1] == ()
    assert tick_due(job, 0, 61_000_000)
    job, effects = ticked(job, 61_000_000)
    (order,) = orders(effects, m.EndWorker).values()
    assert orders(effects, m.EndWorker).keys() == {"m3"}
    assert "rank 2 on m3 did not leave its step for 61 s" in order.why
    assert ticked(job, 61_100_000)[1] == (), "it is under way"


def test_so_is_who_does_not_unwind_where_all_go_back() -> None:
    job = after(
        with_a_cut()[0],
        lost("m2", at_us=100),
        position("m1", 0, 2, 8),
        said("m3", m.Position(rank=2, epoch=2, committed=8, gate=0, patience_ms=60_000)),
        *(vault(name, 2, {1: [9]}, at_us=1000) for name in ("m1", "m3", "m4")),
        said("m1", m.Left()),
    )[0]
    assert job.change is not None
    assert job.change.back
    _, effects = ticked(job, 61_000_000)
    assert orders(effects, m.EndWorker).keys() == {"m3"}


def test_so_is_a_joiner_that_does_not_leave_what_it_was() -> None:
    """m2 has just been moved away from, and is all there is for the rank of m4, which is lost."""
    job = MOVED
    assert (job.machines["m2"].state, len(job.machines)) == (MachineState.LEAVING, 4)
    job, _ = after(
        job,
        lost("m4", at_us=1_000_000),
        *(position(name, rank, 3) for rank, name in ((0, "m1"), (2, "m3"))),
        *(vault(name, 3, {1: [8]}, at_us=1_000_200) for name in ("m1", "m2", "m3")),
        *(at_boundary(name, rank, 3) for rank, name in ((0, "m1"), (2, "m3"))),
    )
    assert job.change is not None
    assert job.change.joiners == {1: "m2"}
    assert not tick_due(job, 0, 20_000_000)
    assert tick_due(job, 0, 22_000_000)
    _, effects = ticked(job, 22_000_000)
    assert orders(effects, m.EndWorker).keys() == {"m2"}
    there, _ = after(job, said("m2", m.Left()))
    assert orders(ticked(there, 22_000_000)[1], m.EndWorker) == {}


def test_who_asked_for_any_time_has_it() -> None:
    patient = said("m3", m.Position(rank=2, epoch=2, committed=7, gate=0))
    job, _ = after(spinning(), patient)
    assert ticked(job, 10**10)[1] == ()
    job, _ = after(spinning(), at_boundary("m3", 2, 2))
    assert ticked(job, 10**10)[1] == ()
