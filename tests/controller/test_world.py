"""Thousands of random histories: kills, crashes and moves at any moment."""

import pytest
from world import World

from trainmover.controller import Job, decide
from trainmover.controller.events import MoveRequested


def play(world: World, *, kills: int, crashes: int, moves: int) -> None:
    """Spread failures over the run, then let it come to its end."""
    acts = ["kill"] * kills + ["crash"] * crashes + ["move"] * moves
    world.random.shuffle(acts)
    for act in acts:
        world.run(moments=world.random.randrange(10, 400))
        names = [box.name for box in world.boxes.values() if box.alive]
        if world.ended is not None or not names:
            return
        getattr(world, act)(world.random.choice(names))
    world.run(moments=20000)


def check(world: World) -> None:
    """Steps are committed once and in order on every rank; the job came to a defined end."""
    tail = "\n".join(world.trace[-60:])
    assert world.ended is not None, tail
    if world.ended.code == 0:
        assert all(world.job.finished[r][0] == world.steps for r in world.applied), tail
        for rank, steps in world.applied.items():
            assert steps == sorted(set(steps)), (rank, steps, tail)
        asked = [event.request for event in world.events if isinstance(event, MoveRequested)]
        assert sorted(answer.request for answer in world.answers) == sorted(asked), tail


@pytest.mark.parametrize("seed", range(300))
def test_one_failure_with_standbys_left_never_ends_the_job(seed: int) -> None:
    world = World(seed)
    play(world, kills=1, crashes=0, moves=0)
    check(world)
    assert world.ended is not None
    assert world.ended.code == 0, world.ended.text


@pytest.mark.parametrize("seed", range(300))
def test_moves_and_crashes_never_end_the_job(seed: int) -> None:
    world = World(seed, nproc=1 + seed % 2)
    play(world, kills=0, crashes=1, moves=3)
    check(world)
    assert world.ended is not None
    assert world.ended.code == 0, world.ended.text


@pytest.mark.parametrize("seed", range(100))
def test_a_loss_during_a_move_with_one_standby_never_ends_the_job(seed: int) -> None:
    world = World(seed, standbys=1, nproc=1 + seed % 2)
    play(world, kills=1, crashes=0, moves=3)
    check(world)
    assert world.ended is not None
    assert world.ended.code == 0, world.ended.text


@pytest.mark.parametrize("seed", range(150))
def test_crashes_without_a_standby_never_end_the_job(seed: int) -> None:
    world = World(seed, standbys=0, nproc=1 + seed % 2)
    play(world, kills=0, crashes=3, moves=0)
    check(world)
    assert world.ended is not None
    assert world.ended.code == 0, world.ended.text


@pytest.mark.parametrize("seed", range(400))
def test_any_history_ends_and_is_replayed_exactly(seed: int) -> None:
    world = World(seed, machines=4, standbys=2, nproc=1 + seed % 2)
    play(world, kills=2, crashes=2, moves=2)
    check(world)
    job = Job(world.job.spec)
    for event in world.events:
        job, _ = decide(job, event)
    assert job == world.job
