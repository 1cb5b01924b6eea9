"""Machines that are lost together, or one after the other: never too many for who has standbys."""

from dataclasses import replace

import msgspec
import pytest
from jobs import (
    after,
    ended,
    exited,
    finished,
    joined,
    kinds,
    lost,
    orders,
    recovered,
    running,
    said,
    up,
)
from test_scale import job_of

from trainmover.controller import Job, decide
from trainmover.controller.change.interruption import RETRIES_MAX
from trainmover.controller.change.seats import with_machine
from trainmover.controller.effects import End, Fence
from trainmover.controller.events import WorkerSaid
from trainmover.controller.state import Machines, MachineState, Outcome, Phase, Stage
from trainmover.ids import Slot
from trainmover.protocol import messages as m


def with_standbys(machines: int, standbys: int) -> Job:
    """All ranks hold the same, all standbys are warm."""
    job = job_of(machines, alike=True)
    spare = job.machines[f"m{machines + 1}"]
    names = [f"m{machines + 1 + number}" for number in range(standbys)]
    more = {
        name: replace(spare, id=name, vault=f"v{name}", workers={0: f"{name}/0"}) for name in names
    }
    return replace(job, machines=Machines({**job.machines, **more}))


# --- together -------------------------------------------------------------------------------------


def test_machines_lost_together_are_one_epoch_and_one_incident() -> None:
    job = with_standbys(40, 20)
    rack = [f"m{number}" for number in range(1, 18)]
    job, effects = decide(job, lost(*rack))
    assert job.change is not None
    assert (job.epoch_last, job.retries, len(job.incidents)) == (2, 0, 1)
    assert set(job.change.joiners) == set(range(17))
    assert [effect for effect in effects if isinstance(effect, Fence)] == list(map(Fence, rack))
    assert set(orders(effects, m.Interrupt)) == set(job.machines)
    (incident,) = job.incidents
    assert (incident.lost, incident.ranks) == (tuple(rack), tuple(range(17)))
    assert incident.cause == "17 machines (m1, m2, m3, m4, m5, m6 ...) were lost: link broke"


def test_a_rack_whose_machines_are_lost_one_by_one_does_not_end_the_job() -> None:
    job = with_standbys(40, 20)
    for number in range(1, 18):
        job, effects = decide(job, lost(f"m{number}"))
        assert not [effect for effect in effects if isinstance(effect, End)]
    assert job.change is not None
    assert (job.retries, len(job.change.joiners)) == (0, 17)
    assert recovered(job)[0].change is None


def test_standbys_that_are_lost_with_the_rack_are_not_taken() -> None:
    job = with_standbys(4, 3)
    job, _ = decide(job, lost("m1", "m5", "m6"))
    assert job.change is not None
    assert job.change.joiners == {0: "m7"}


def test_standbys_lost_alone_are_no_incident() -> None:
    job, effects = decide(with_standbys(4, 3), lost("m5", "m6"))
    assert (job.incidents, kinds(effects)) == ((), [("", "Fence"), ("", "Fence")])


def test_the_standby_that_keeps_the_records_of_a_job_of_one_machine_is_missed() -> None:
    """Its rank waits for it in each step, and does not see that a host has lost power."""
    job = running(machines=1, standbys=2)
    (keeper,) = job.keepers[0]
    (other,) = job.machines.keys() - {keeper, *job.seats}
    new, effects = decide(job, lost(keeper))
    assert new.change is not None
    assert orders(effects, m.Interrupt).keys() == {*job.seats, other}
    assert decide(job, lost(other))[0].change is None
    assert decide(new, lost(other))[0].epoch_last == new.epoch_last, "it has no new keeper yet"
    done, _ = after(job, finished(job.seats[0], 0))
    assert decide(done, lost(keeper))[0].change is None


def test_an_exit_that_is_heard_twice_is_one() -> None:
    """Of a process that had said nothing yet, as well."""
    job, effects = decide(running(machines=3, standbys=0), exited("m2", pid=77))
    assert orders(effects, m.StartWorkers).keys() == {"m2"}
    assert decide(job, exited("m2", pid=77)) == (job, ())


def test_more_losses_than_standbys_end_the_job_with_one_sentence() -> None:
    _, effects = decide(with_standbys(4, 1), lost("m1", "m2"))
    assert ended(effects).text.startswith(
        "m1 and m2 were lost: link broke; 2 machines must be replaced and 1 standby is left"
    )


def test_losses_before_the_job_began_are_counted_one_by_one() -> None:
    job = running(machines=2, standbys=1)
    job = replace(job, phase=Phase.GATHERING, seats=())
    job, effects = decide(job, lost("m1", "m2"))
    assert ended(effects).text.startswith("m2 was lost before the job began")


def test_a_loss_of_nobody_known_changes_nothing() -> None:
    job = with_standbys(4, 1)
    assert decide(job, lost("m77", "m78")) == (job, ())


# --- one after the other --------------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 3])
def test_losses_without_a_commit_between_never_end_a_job(together: int) -> None:
    """Each is recovered from; a long step takes longer than from one loss to the next."""
    job = with_standbys(4, 3 * (RETRIES_MAX + 2))
    for _ in range(RETRIES_MAX + 2):
        job, _ = decide(job, lost(*job.seats[:together]))
        assert job.phase is Phase.RUNNING, job.ended_because
        job, _ = recovered(job)
    assert job.retries == 0


def test_processes_that_end_at_the_same_moment_on_many_machines_are_one_attempt() -> None:
    job = with_standbys(40, 20)
    for number in range(1, 18):
        job, _ = decide(job, exited(f"m{number}"))
    assert (job.phase, job.retries) == (Phase.RUNNING, 1)


def test_a_joiner_whose_process_ends_again_and_again_ends_the_job() -> None:
    job = running(standbys=0)
    for _ in range(RETRIES_MAX):
        job, _ = after(job, exited("m2"), up("m2"))
    _, effects = decide(job, exited("m2"))
    assert "without a committed step" in ended(effects).text


def test_links_that_break_again_and_again_are_attempts() -> None:
    job = with_standbys(4, 1)
    for attempt in range(RETRIES_MAX):
        job, _ = decide(job, broken(job))
        assert job.retries == attempt + 1
        job, _ = recovered(job)
        job = replace(job, incidents=())  # Of a step that is another each time.
    _, effects = decide(job, broken(job))
    assert "without a committed step" in ended(effects).text


def broken(job: Job) -> WorkerSaid:
    return said(job.seats[1], m.Interrupted(rank=1, epoch=job.epoch, reason="link broke"))


def test_a_loss_that_explains_a_broken_link_is_the_same_incident() -> None:
    job = with_standbys(4, 2)
    job, _ = decide(job, broken(job))
    job, _ = decide(job, lost("m1", "m3"))
    (incident,) = job.incidents
    assert (incident.lost, incident.outcome, job.retries) == (("m1", "m3"), Outcome.OPEN, 1)


def test_a_machine_that_comes_may_take_what_is_missing() -> None:
    job = with_standbys(4, 1)
    job = replace(job, spec=msgspec.structs.replace(job.spec, wait_s=60))
    job, _ = decide(job, lost("m1", "m2"))
    assert job.change is not None
    assert (job.change.stage, job.change.missing) == (Stage.DRAIN, frozenset({1}))
    job, _ = after(job, joined("m9", standby=True), up("m9"))
    assert job.change is not None
    assert job.change.joiners == {0: "m5", 1: "m9"}
    assert "wait" in job.incidents[0].marks


KEPT = set(MachineState) - {
    MachineState.STARTING, MachineState.DOWN, MachineState.COLD, MachineState.ACTIVE,
}  # fmt: skip


@pytest.mark.parametrize("state", MachineState)
def test_a_joiner_that_has_its_processes_keeps_its_slot_in_the_next_epoch(
    state: MachineState,
) -> None:
    """Others, that are as ready as can be, get it where the joiner has to begin anew."""
    job, _ = after(running(standbys=3), lost("m2"))
    assert job.change is not None
    (joiner,) = job.change.joiners.values()
    job, _ = after(with_machine(job, joiner, state=state), lost("m3"))
    assert job.change is not None
    assert (job.change.joiners[Slot(1)] == joiner) == (state in KEPT)
    assert job.change.joiners.keys() == {1, 2}
