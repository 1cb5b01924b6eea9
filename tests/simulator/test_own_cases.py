"""Single things that seldom happen, each where it matters most."""

import pytest

from tests.simulator.test_blips import begun
from trainmover.controller.state import MachineState, Phase
from trainmover.ids import MachineId
from trainmover.simulator.checkers import all_checkers
from trainmover.simulator.faults import SECOND
from trainmover.simulator.story import plan_of, play
from trainmover.simulator.world import World

STEP_US = 5 * SECOND


def slow(seed: int) -> World:
    """Steps take up to five seconds, and all train."""
    world = World(seed, machines=4, standbys=2, step_us=STEP_US, checkers=all_checkers())
    assert world.run(300 * SECOND, until=lambda: world.training.newest >= 4 and _all_warm(world))
    world.run(world.between(0, STEP_US))
    return world


def _all_warm(world: World) -> bool:
    return world.job.machines.count(MachineState.WARM) == 2


@pytest.mark.turns(4)
@pytest.mark.parametrize("seconds", [0.5, 2, 4])
def test_a_machine_that_freezes_for_less_than_a_long_step_loses_nothing(seconds: float) -> None:
    for seed in range(6):
        world = slow(seed)
        box = world.boxes[world.job.seats[1]]
        box.frozen = True
        world.at(int(seconds * SECOND), box.thaw)
        before = world.training.newest
        world.run(60 * SECOND)
        assert (world.ended, world.job.incidents) == (None, ())
        assert world.training.newest > before + 8


def test_a_machine_that_stays_frozen_is_given_up_after_two_long_steps() -> None:
    for seed in range(6):
        world = slow(seed)
        frozen, began = world.job.seats[1], world.now
        world.boxes[frozen].frozen = True
        world.run(60 * SECOND, until=lambda world=world: bool(world.job.incidents))
        (incident,) = world.job.incidents
        assert incident.lost == (frozen,)
        assert world.now - began <= 4 * STEP_US
        world.run(60 * SECOND)
        assert world.job.incidents[0].rung == 1


@pytest.mark.parametrize("at", [MachineState.STARTING, MachineState.WARMING, MachineState.HOLDING])
def test_a_standby_that_is_stopped_as_it_starts_comes_after_all(at: MachineState) -> None:
    for seed in range(4):
        world = begun(seed, 3, 1)
        new = world.add(standby=True).name

        def there(world: World = world, new: MachineId = new) -> bool:
            known = world.job.machines.get(new)
            return known is not None and known.state is at and bool(world.boxes[new].workers)

        assert world.run(20 * SECOND, until=there)
        (worker,) = world.boxes[new].workers
        worker.stopped = True
        world.boxes[new].process_state(worker, "stopped", 0)
        world.run(5 * SECOND)
        assert world.job.machines[new].state is at
        world.run(15 * SECOND)
        assert world.job.machines[new].state is MachineState.WARM
        assert world.job.incidents == ()


def test_a_socket_between_an_agent_and_a_worker_that_fails_costs_no_committed_step() -> None:
    """What it said last nobody has heard; its buddy has it."""
    for seed in range(10):
        world = begun(seed, 3, 1)
        (worker,) = world.boxes[world.job.seats[1]].workers
        worker.box.cut_off(worker)
        world.run(20 * SECOND)
        (incident,) = world.job.incidents
        assert (incident.rung, incident.outcome) == (1, "done")
        newest = world.training.newest
        world.training.steps = newest + 3
        world.run(20 * SECOND)
        assert world.ended is not None
        told = [(rank, step) for rank in range(3) for step in range(1, newest + 4)]
        assert [one for one in told if one not in world.disk.rows] == []


@pytest.mark.turns(4)
@pytest.mark.parametrize("off_s", [-3600, -30, 30, 3600])
def test_a_clock_that_is_set_changes_nothing_with_or_without_a_successor(off_s: int) -> None:
    for seed in range(3):
        world = begun(seed, 3, 1)
        world.clock_off_us += off_s * SECOND
        world.run(3 * SECOND)
        assert (world.ended, world.job.incidents) == (None, ())
        world.lose_controller(500_000)
        world.run(5 * SECOND)
        assert (world.ended, world.job.incidents) == (None, ())
        world.crash(world.job.seats[0])
        world.run(5 * SECOND)
        (incident,) = world.job.incidents
        assert incident.outcome == "done"
        marks = incident.marks
        assert max(marks.values()) - min(marks.values()) < 5 * SECOND
        at_us = [event.at_us for event in world.disk.events()]
        assert at_us == sorted(at_us)


def test_nobody_of_another_version_comes_in_and_nobody_of_another_torch_gets_ranks() -> None:
    world = World(
        1,
        machines=3,
        standbys=1,
        old=("m5",),
        others=("m4",),
        refill=False,
        checkers=all_checkers(),
    )
    assert world.run(60 * SECOND, until=lambda: world.job.all_recorded)
    world.add(standby=True)
    world.run(5 * SECOND)
    assert "m5" not in world.job.machines
    assert "torch" in world.job.machines[MachineId("m4")].note
    world.crash(world.job.seats[0])
    world.run(3 * SECOND)
    assert world.job.phase is Phase.RUNNING
    assert world.job.change is not None
    assert world.job.change.missing == {0}


@pytest.mark.turns(4)
@pytest.mark.parametrize("step_us", [20_000, 1_000_000, 5_000_000])
def test_steps_of_any_length_go_on(step_us: int) -> None:
    for seed in range(10):
        plan = plan_of(seed, seconds=max(5, 4 * step_us // SECOND))
        plan.world |= {"step_us": step_us, "snapshots": 3, "checkpoints": 5, "rounds": 3}
        assert not play(plan).violation, seed
