"""The store where groups meet is lost: everybody is told, and who was meeting there begins anew."""

import pytest
from jobs import (
    BOUNDARY,
    DRAINS,
    MOVE_BINDS,
    MOVE_PAUSES,
    MOVE_PREPARES,
    MOVE_SWITCHES,
    RECOVERY_SWITCHES,
    RUNNING,
    after,
    at_boundary,
    joined,
    kinds,
    orders,
    prepared,
    running,
)

from trainmover.controller import Job, decide
from trainmover.controller.change.seats import with_machine
from trainmover.controller.events import StoreMoved
from trainmover.controller.state import Cut, Kind, MachineState, Stage
from trainmover.controller.values import replace
from trainmover.ids import Rank, Step
from trainmover.protocol import messages as m

LOST = StoreMoved(at_us=7, address="new:1")
TOLD = [(name, "StoreAt") for name in ("m1", "m2", "m3", "m4")]


def test_everybody_is_told_and_the_job_trains_on() -> None:
    job, effects = decide(RUNNING, LOST)
    assert kinds(effects) == TOLD
    assert orders(effects, m.StoreAt)["m2"].address == "new:1"
    assert (job.store, job.epoch_last, job.incidents) == ("new:1", RUNNING.epoch_last, ())


def test_what_is_known_is_no_news() -> None:
    job, _ = decide(RUNNING, LOST)
    assert decide(job, LOST) == (job, ())


def test_who_joins_later_is_told_before_its_workers_start() -> None:
    job, _ = decide(RUNNING, LOST)
    _, effects = decide(job, joined("m5", standby=True))
    assert kinds(effects) == [("m5", "StoreAt"), ("m5", "StartWorkers")]


@pytest.mark.parametrize("job", [MOVE_BINDS, MOVE_PAUSES, DRAINS, BOUNDARY])
def test_a_change_in_which_nobody_meets_goes_on_as_it_was(job: Job) -> None:
    went_on, effects = decide(job, LOST)
    assert {kind for _, kind in kinds(effects)} == {"StoreAt"}
    assert went_on.change == job.change


@pytest.mark.parametrize("job", [MOVE_SWITCHES, RECOVERY_SWITCHES])
def test_a_switchover_under_way_is_the_next_event(job: Job) -> None:
    again, effects = decide(job, LOST)
    assert again.change is not None
    assert (again.change.kind, again.change.epoch) == (Kind.RECOVERY, 3)
    told = kinds(effects)
    assert max(i for i, (_, kind) in enumerate(told) if kind == "StoreAt") < min(
        i for i, (_, kind) in enumerate(told) if kind == "Interrupt"
    )


def test_phase_1_of_a_move_is_done_again_under_a_new_number() -> None:
    half, _ = after(MOVE_PREPARES, prepared("m1", 0, 2))
    again, effects = decide(half, LOST)
    assert {order.epoch for order in orders(effects, m.Prepare).values()} == {3}
    late, _ = decide(again, prepared("m3", 2, 2, reason="the store is gone"))
    assert late == again
    paused, _ = after(again, *(prepared(n, r, 3) for r, n in enumerate(("m1", "m4", "m3"))))
    switching, _ = after(
        paused, *(at_boundary(name, rank, 3) for rank, name in enumerate(("m1", "m2", "m3")))
    )
    assert switching.change is not None
    assert (switching.change.stage, switching.incidents[-1].epoch) == (Stage.SWITCH, 3)


@pytest.mark.parametrize(
    "state", [MachineState.WARMING, MachineState.HOLDING, MachineState.LEAVING]
)
def test_workers_that_may_be_meeting_inside_their_machine_are_started_afresh(
    state: MachineState,
) -> None:
    job = with_machine(running(nproc=2), "m4", state=state, held=None, said=frozenset({0}))
    job, effects = decide(job, LOST)
    assert kinds(effects)[-1] == ("m4", "StartWorkers")
    assert job.machines["m4"].state is MachineState.STARTING


def test_who_leaves_ranks_and_has_a_snapshot_of_them_keeps_it() -> None:
    job = with_machine(running(nproc=2), "m4", state=MachineState.LEAVING, held=None)
    mine = {Rank(0): job.machines["m4"].workers[1]}
    cut = Cut(step=Step(3), vaults={}, workers=mine, bytes=1, cost_us=1)
    job, effects = decide(replace(job, cut=cut), LOST)
    assert job.machines["m4"].state is MachineState.LEAVING
    assert ("m4", "StartWorkers") not in kinds(effects)


@pytest.mark.parametrize("parked", [1, 2])
def test_one_that_is_bound_has_met_when_all_its_workers_are_parked(parked: int) -> None:
    knobs = {"state": MachineState.BOUND, "held": None, "said": frozenset(range(parked))}
    job, effects = decide(with_machine(running(nproc=2), "m4", **knobs), LOST)
    assert (("m4", "StartWorkers") in kinds(effects)) is (parked == 1)
    assert (job.machines["m4"].state is MachineState.BOUND) is (parked == 2)


def test_a_warm_standby_of_several_workers_stays_as_it_is() -> None:
    job = running(nproc=2)
    after_it, _ = decide(job, LOST)
    assert after_it.machines == job.machines
