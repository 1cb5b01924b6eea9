"""Random histories around going back to a cut: suspects, endings, cancelled moves, loops."""

from collections.abc import Callable

import pytest
from world import World

from trainmover.controller.seats import with_machine
from trainmover.controller.state import Outcome
from trainmover.protocol import messages as m


def sharded(seed: int, *, steps: int, **asked: int) -> World:
    return World(seed, alone=True, snapshots=2, steps=steps, **asked)


def until(world: World, fact: Callable[[], bool], *, moments: int = 20000) -> bool:
    """Whether it came to be, before the job ended."""
    for _ in range(moments):
        if world.ended is not None or fact():
            break
        world.run(moments=1)
    return world.ended is None and fact()


def quiet_with_a_cut(world: World) -> bool:
    return world.job.cut is not None and world.job.change is None


def well(world: World) -> None:
    world.run(moments=30000)
    assert world.ended is not None, "\n".join(world.trace[-40:])
    assert world.ended.code == 0, world.ended.text


@pytest.mark.parametrize("seed", range(40))
def test_a_rank_that_is_not_trusted_goes_back_with_the_others(seed: int) -> None:
    world = sharded(seed, machines=3, standbys=2, steps=30)
    assert until(world, lambda: quiet_with_a_cut(world))
    world.job = with_machine(world.job, world.job.seats[2], suspect="its memory is in doubt")
    world.kill(world.job.seats[0])
    well(world)


@pytest.mark.parametrize("seed", range(40))
def test_ranks_that_were_through_go_back_too(seed: int) -> None:
    world = sharded(seed, machines=3, standbys=3, steps=12)
    if until(world, lambda: quiet_with_a_cut(world) and len(world.job.finished) == 1):
        lost = next(rank for rank in range(3) if rank not in world.job.finished)
        world.kill(world.job.seats[lost])
    well(world)


@pytest.mark.parametrize("seed", range(40))
def test_cuts_go_on_after_a_move_that_was_cancelled(seed: int) -> None:
    world = sharded(seed, machines=3, standbys=2, steps=60)
    assert until(world, lambda: quiet_with_a_cut(world))
    world.move(world.job.seats[1])
    joiner = next(iter(world.job.change.joiners.values())) if world.job.change else ""
    world.run(moments=world.random.randrange(1, 40))
    if world.job.incidents[-1].outcome is Outcome.OPEN:
        world.kill(joiner)
    well(world)
    assert world.job.cut is not None
    assert world.job.cut.step > 40


def test_a_step_at_which_all_ranks_crash_ends_the_job_after_three_tries() -> None:
    world = sharded(1, machines=2, standbys=1, steps=60)

    def all_before_37() -> bool:
        live = [worker for worker in world.peers_of_all() if worker.live]
        return world.job.change is None and len(live) == 2 and {w.step for w in live} == {36}

    tries = 0
    while until(world, all_before_37):
        tries += 1
        for machine in world.job.seats:
            world.crash(machine)
    assert 3 <= tries <= 5  # Nobody is left to tell whether it was in the gate of 37 or behind it.
    assert world.ended is not None
    assert "has failed 3 times" in world.ended.text


def test_what_a_finished_run_says_late_does_not_count() -> None:
    world = sharded(3, machines=3, standbys=2, steps=30)
    assert until(world, lambda: quiet_with_a_cut(world))
    world.kill(world.job.seats[0])
    assert until(world, lambda: world.job.change is not None and world.job.change.back)
    (late,) = [w for w in world.peers_of_all() if w.machine == world.job.seats[2]]
    world.say(late, m.Finished(rank=2, step=30, code=0, digest="d", attached=True))
    well(world)
