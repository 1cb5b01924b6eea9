"""Worlds in which what happens is told beforehand, and how each must end."""

from collections.abc import Callable

import pytest

from trainmover.controller.compare.roles import kinds
from trainmover.controller.events import MoveRequested
from trainmover.controller.state import Kind, Machine, MachineState, Outcome, Stage
from trainmover.ids import MachineId, Step
from trainmover.simulator.checkers import all_checkers
from trainmover.simulator.faults import SECOND
from trainmover.simulator.world import World


def world_of(seed: int, **knobs: object) -> World:
    return World(seed, checkers=all_checkers(), **knobs)


def until(world: World, fact: Callable[[], bool], seconds: int = 60) -> bool:
    """Whether it came to be, before the job ended."""
    return world.run(seconds * SECOND, until=fact) and world.ended is None


def trains(world: World) -> bool:
    """All first steps are recorded, and nothing is under way."""
    job = world.job
    over = not job.incidents or job.incidents[-1].outcome is not Outcome.OPEN
    return job.all_recorded and job.change is None and over


def has_a_cut(world: World) -> bool:
    return trains(world) and world.job.cut is not None


def well(world: World, *, more: int = 6) -> None:
    """A few steps more, then the script ends, and the job does so well."""
    world.training.steps = min(world.training.steps, Step(world.training.newest + more))
    world.run(200 * SECOND)
    assert world.ended is not None, "\n".join([*world.trace][-40:])
    assert world.ended.code == 0, world.ended.text


def crash(world: World, machine: MachineId) -> None:
    """One process of it."""
    box = world.boxes[machine]
    box.exited(world.random.choice(box.workers), -9)


def move(world: World, machine: MachineId) -> None:
    assert world.host is not None
    world.host.request(MoveRequested(at_us=world.host.now, request="r", machine=machine))


# --- a machine is waited for ------------------------------------------------------------------


def waits_for_a_machine(seed: int) -> World:
    world = world_of(seed, standbys=0, nproc=1 + seed % 2, wait_s=60, refill=False)
    assert until(world, lambda: trains(world))
    world.crash(world.random.choice(world.job.seats))
    assert until(world, lambda: world.job.change is not None and bool(world.job.change.missing))
    world.run(world.between(0, 30 * SECOND))
    assert world.ended is None
    return world


@pytest.mark.parametrize("seed", range(5))
def test_a_job_that_waits_is_continued_by_a_machine_that_comes(seed: int) -> None:
    world = waits_for_a_machine(seed)
    world.add(standby=True)
    well(world)


@pytest.mark.parametrize("seed", range(3))
def test_a_machine_without_power_is_given_up_once_another_can_take_its_ranks(seed: int) -> None:
    """It may be back before that: nothing would be won by giving it up."""
    world = world_of(seed, standbys=0, wait_s=60, refill=False)
    assert until(world, lambda: trains(world))
    world.crash(world.random.choice(world.job.seats), silent=True)
    world.run(20 * SECOND)
    assert world.job.incidents == ()
    world.add(standby=True)
    well(world)


@pytest.mark.parametrize("seed", range(3))
def test_a_job_that_waits_in_vain_ends_with_the_reason(seed: int) -> None:
    world = waits_for_a_machine(seed)
    world.run(61 * SECOND)
    assert world.ended is not None
    assert "none has come in 60 s" in world.ended.text


@pytest.mark.parametrize("seed", range(5))
def test_a_loss_in_a_move_with_one_standby_never_ends_a_job_that_waits(seed: int) -> None:
    world = world_of(seed, standbys=1, nproc=1 + seed % 2)
    assert until(world, lambda: trains(world))
    move(world, world.job.seats[1])
    world.run(world.between(0, SECOND))
    world.crash(world.random.choice(world.job.seats))
    well(world)


@pytest.mark.parametrize("seed", range(3))
def test_ranks_that_stand_at_a_pause_train_on_if_it_is_taken_back(seed: int) -> None:
    world = world_of(seed, standbys=2, nproc=1 + seed % 2)
    assert until(world, lambda: trains(world))
    move(world, world.job.seats[1])

    def stands() -> bool:
        change = world.job.change
        at_pause = change is not None and change.stage is Stage.PAUSE
        return at_pause and any(w.paused and w.waits is not None for w in world.workers())

    assert until(world, stands)
    assert world.job.change is not None
    world.crash(next(iter(world.job.change.joiners.values())))
    assert until(world, lambda: trains(world))
    newest = world.training.newest
    assert until(world, lambda: world.training.newest > newest + 3, seconds=2)
    well(world)


# --- standbys ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_standbys_left_alone_prove_every_kind_and_hold_different_slots(seed: int) -> None:
    world = world_of(seed, stages=3, nproc=1 + seed % 2)

    def spare() -> list[Machine]:
        names = (MachineId("m5"), MachineId("m6"))
        return [world.job.machines[name] for name in names if name in world.job.machines]

    def ready() -> bool:
        warm = [m for m in spare() if m.state is MachineState.WARM and m.held is not None]
        return len(warm) == 2

    assert until(world, ready)
    assert {machine.held for machine in spare()} == {0, 1}
    assert all(machine.proven(first) for machine in spare() for first in kinds(world.job))


# --- state that nobody else holds -------------------------------------------------------------


def rungs(world: World) -> set[int]:
    """Of all recoveries that have cost ranks."""
    incidents = world.job.incidents
    return {i.rung for i in incidents if i.ranks and i.kind is Kind.RECOVERY}


@pytest.mark.parametrize("seed", range(6))
def test_what_nobody_else_holds_is_gone_back_for_to_the_newest_cut(seed: int) -> None:
    world = world_of(seed, nproc=1 + seed % 2, alone=True)
    assert until(world, lambda: has_a_cut(world))
    machine = world.random.choice(world.job.seats)
    (crash if seed % 2 else World.crash)(world, machine)
    well(world)
    assert rungs(world) == {2}


@pytest.mark.parametrize("seed", range(6))
def test_what_no_memory_holds_is_taken_from_the_newest_checkpoint(seed: int) -> None:
    world = world_of(seed, nproc=1 + seed % 2, alone=True, snapshots=0, checkpoints=5)
    assert until(world, lambda: trains(world) and world.job.checkpoint is not None)
    machine = world.random.choice(world.job.seats)
    (crash if seed % 2 else World.crash)(world, machine)
    well(world)
    assert rungs(world) <= {2, 3}  # 2: whoever has left may hold it in its memory.


def test_ranks_that_are_through_go_back_too() -> None:
    for seed in range(6):
        world = world_of(seed, machines=3, standbys=3, alone=True, snapshots=2, steps=12)
        if until(world, lambda w=world: has_a_cut(w) and len(w.job.finished) == 1):  # type: ignore[misc]
            lost = next(rank for rank in range(3) if rank not in world.job.finished)
            world.crash(world.job.seats[lost])
        well(world)


def test_cuts_go_on_after_a_move_that_was_cancelled() -> None:
    for seed in range(4):
        world = world_of(seed, machines=3, alone=True, snapshots=2)
        assert until(world, lambda w=world: has_a_cut(w) and len(w.job.machines) == 5)  # type: ignore[misc]
        move(world, world.job.seats[1])
        change = world.job.change
        assert change is not None
        world.run(world.between(0, SECOND // 10))
        world.crash(next(iter(change.joiners.values())))
        step = world.training.newest
        well(world, more=20)
        assert world.job.cut is not None
        assert world.job.cut.step > step + 10


def test_a_step_at_which_all_ranks_crash_ends_the_job_after_three_tries() -> None:
    world = world_of(1, machines=2, standbys=1, alone=True, snapshots=2)

    def all_before_37() -> bool:
        live = [worker for worker in world.workers() if worker.live]
        return world.job.change is None and len(live) == 2 and {w.step for w in live} == {36}

    tries = 0
    while until(world, all_before_37):
        tries += 1
        for machine in world.job.seats:
            crash(world, machine)
    assert 3 <= tries <= 5  # Nobody is left to tell whether it was in the gate of 37 or behind it.
    assert world.ended is not None
    assert "has failed 3 times" in world.ended.text


# --- racks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_rack_may_be_lost_with_all_its_machines(seed: int) -> None:
    world = world_of(seed, machines=4, alone=seed % 2 == 0, racks=2 + seed % 2, snapshots=3)
    assert until(world, lambda: has_a_cut(world) and len(world.job.machines) == 6)
    rack = world.boxes[world.random.choice(world.job.seats)].rack
    for box in [*world.boxes.values()]:
        if box.rack == rack:
            box.die(silent=seed % 3 == 0)
    well(world)


@pytest.mark.parametrize("seed", range(4))
def test_with_a_second_copy_two_machines_may_be_lost(seed: int) -> None:
    world = world_of(seed, machines=4, standbys=2, alone=True, copies=2, snapshots=3)

    def copied() -> bool:
        cut = world.job.cut
        return has_a_cut(world) and cut is not None and len(cut.further) == 4

    assert until(world, copied)
    slot = world.random.randrange(4)
    for machine in (world.job.seats[slot], world.job.keepers[slot][0]):  # type: ignore[index]
        world.crash(machine)
    well(world)
    assert 2 in rungs(world)


# --- rounds -----------------------------------------------------------------------------------


def watched(seed: int, **knobs: object) -> World:
    world = world_of(seed, rounds=2, on_divergence="replace", **knobs)
    assert until(world, lambda: trains(world) and world.job.comparison.step > 3)
    return world


def flip(world: World, machine: MachineId) -> None:
    world.flip(world.boxes[machine].workers[0])


def test_a_flipped_bit_is_found_and_healed() -> None:
    for seed in range(6):
        world = watched(seed, nproc=1 + seed % 2)
        flip(world, world.job.seats[1])
        found = lambda w=world: any(d.diverged for d in w.job.comparison.divergences)  # noqa: E731
        assert until(world, found)
        assert until(world, lambda w=world: trains(w) and not w.job.comparison.diverged)  # type: ignore[misc]
        well(world)
        assert not any(worker.holds.flaw for worker in world.workers() if worker.live)


def test_a_rank_that_is_not_trusted_goes_back_with_the_others() -> None:
    for seed in range(3):
        world = world_of(seed, standbys=4, snapshots=3, rounds=2, copies=2)
        assert until(world, lambda w=world: has_a_cut(w))  # type: ignore[misc]
        flip(world, world.job.seats[1])
        assert until(world, lambda w=world: has_a_cut(w) and bool(w.job.comparison.diverged))  # type: ignore[misc]
        for machine in (world.job.seats[2], world.job.keepers[2][0]):  # type: ignore[index]
            world.crash(machine)
        well(world)
        assert rungs(world) & {2, 3}


def test_what_a_checkpoint_has_of_a_rank_that_was_diverged_is_not_trusted_again() -> None:
    """A flaw is in a checkpoint, found later, and healed in a move. Then all go back to where it
    was there, and at once somebody asks for state, of rank 1 first."""
    for seed in range(4):
        world = world_of(
            seed, standbys=4, snapshots=0, checkpoints=15, rounds=20, on_divergence="replace"
        )
        assert until(world, lambda w=world: w.training.newest == 12)  # type: ignore[misc]
        flip(world, world.job.seats[1])
        assert until(world, lambda w=world: trains(w) and len(w.job.incidents) == 1)  # type: ignore[misc]
        assert not world.job.comparison.diverged
        assert world.job.checkpoint is not None
        assert world.job.checkpoint.step == 15
        for machine in (world.job.seats[2], world.job.keepers[2][0]):  # type: ignore[index]
            world.crash(machine)
        assert until(world, lambda w=world: w.job.change is None and 3 in rungs(w))  # type: ignore[misc]
        assert any(worker.holds.flaw for worker in world.workers() if worker.rank == 1)
        world.crash(world.job.seats[0])
        well(world, more=30)
        assert not any(worker.holds.flaw for worker in world.workers() if worker.live)
