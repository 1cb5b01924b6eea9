"""Thousands of random histories: kills, crashes and moves at any moment."""

import pytest
from world import World

from trainmover.controller import Job, decide
from trainmover.controller.events import MoveRequested
from trainmover.controller.roles import kinds
from trainmover.controller.state import MachineState


def play(
    world: World, *, kills: int, crashes: int, moves: int, adds: int = 0, waits: int = 0
) -> None:
    """Spread failures over the run, then let it come to its end."""
    acts = ["kill"] * kills + ["crash"] * crashes + ["move"] * moves
    acts += ["add"] * adds + ["wait"] * waits
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


@pytest.mark.parametrize("seed", range(300))
def test_one_failure_in_a_job_of_several_roles_never_ends_it(seed: int) -> None:
    world = World(seed, machines=6, nproc=1 + seed % 2, stages=3)
    play(world, kills=seed % 2, crashes=1 - seed % 2, moves=1, waits=2)
    check(world)
    assert world.ended is not None
    assert world.ended.code == 0, world.ended.text


@pytest.mark.parametrize("seed", range(300))
def test_a_script_that_runs_once_in_a_process_is_served_by_fresh_ones(seed: int) -> None:
    every = tuple(f"m{i}" for i in range(1, 9))
    world = World(seed, machines=4, stages=2, nproc=1 + seed % 2, once=every)
    play(world, kills=seed % 2, crashes=1 - seed % 2, moves=2, waits=1)
    check(world)
    assert world.ended is not None
    assert world.ended.code == 0, world.ended.text


@pytest.mark.parametrize("seed", range(300))
def test_a_standby_that_fails_one_kind_does_no_harm_while_another_can(seed: int) -> None:
    world = World(seed, machines=4, standbys=2, stages=2, nproc=1 + seed % 2, unfit=(("m5", "p1"),))
    play(world, kills=1, crashes=0, moves=0, waits=1)
    check(world)
    assert world.ended is not None
    assert world.ended.code == 0, world.ended.text


def killed_without_a_standby(seed: int) -> World:
    world = World(seed, standbys=0, nproc=1 + seed % 2, steps=40, wait_s=60)
    while not world.job.all_recorded:
        world.run(moments=1)
    world.kill(world.random.choice(world.job.seats))
    while not world.job.incidents or world.job.change is None or not world.job.change.missing:
        world.run(moments=1)
    world.run(moments=world.random.randrange(200))
    assert world.ended is None
    return world


@pytest.mark.parametrize("seed", range(100))
def test_a_job_that_waits_is_continued_by_a_machine_that_comes(seed: int) -> None:
    world = killed_without_a_standby(seed)
    world.add("")
    world.run(moments=20000)
    check(world)
    assert world.ended is not None
    assert world.ended.code == 0, world.ended.text


@pytest.mark.parametrize("seed", range(30))
def test_a_job_that_waits_in_vain_ends_with_the_reason(seed: int) -> None:
    world = killed_without_a_standby(seed)
    world.run(moments=20000)
    assert world.ended is None
    world.wait("")
    assert world.ended is not None
    assert "none has come in 60 s" in world.ended.text


@pytest.mark.parametrize("seed", range(100))
def test_standbys_left_alone_prove_every_kind_and_hold_different_slots(seed: int) -> None:
    world = World(seed, machines=4, standbys=2, stages=3, nproc=1 + seed % 2, steps=10**6)
    for _ in range(40):
        world.run(moments=200)
        spare = [world.job.machines[name] for name in ("m5", "m6")]
        if all(m.state is MachineState.WARM and m.held is not None for m in spare):
            break
    assert {m.held for m in spare} == {0, 1}
    assert all(m.proven(first) for m in spare for first in kinds(world.job))


def with_a_cut(seed: int, **asked: int) -> World:
    world = World(seed, machines=4, nproc=1 + seed % 2, steps=40, alone=True, **asked)
    while world.job.cut is None and world.ended is None:
        world.run(moments=1)
    return world


@pytest.mark.parametrize("seed", range(300))
def test_a_loss_of_state_that_nobody_else_holds_goes_back_to_the_newest_cut(seed: int) -> None:
    world = with_a_cut(seed)
    play(world, kills=seed % 2, crashes=1 - seed % 2, moves=1)
    check(world)
    assert world.ended is not None
    assert world.ended.code == 0, world.ended.text
    lost = [i for i in world.job.incidents if i.ranks and i.kind == "recovery"]
    assert all(i.rung == 2 for i in lost if i.outcome == "done")


@pytest.mark.parametrize("seed", range(300))
def test_failures_while_all_go_back_end_well_or_with_a_reason(seed: int) -> None:
    world = with_a_cut(seed, standbys=3)
    play(world, kills=2, crashes=2, moves=1)
    check(world)
    assert world.ended is not None
    known = ("snapshot", "no standby", "standbys are left", "standby is left", "ended already")
    known += ("has failed 3 times",)  # By chance all failures may meet one step.
    assert world.ended.code == 0 or any(why in world.ended.text for why in known), world.ended.text


@pytest.mark.parametrize("seed", range(200))
def test_what_no_memory_holds_is_taken_from_the_newest_checkpoint(seed: int) -> None:
    world = World(
        seed, machines=4, nproc=1 + seed % 2, steps=40, alone=True, snapshots=0, checkpoints=5
    )
    while world.job.checkpoint is None and world.ended is None:
        world.run(moments=1)
    play(world, kills=seed % 2, crashes=1 + seed % 2, moves=1)
    check(world)
    assert world.ended is not None
    assert world.ended.code == 0, world.ended.text
    lost = [i for i in world.job.incidents if i.ranks and i.kind == "recovery"]
    assert all(i.rung >= 2 for i in lost if i.outcome == "done")  # 2: who has left may hold it.


@pytest.mark.parametrize("seed", range(400))
def test_any_history_ends_and_is_replayed_exactly(seed: int) -> None:
    world = World(
        seed,
        machines=4,
        standbys=2,
        nproc=1 + seed % 2,
        stages=1 + seed % 3,
        once=("m5", "m2") if seed % 5 == 0 else (),
        unfit=(("m6", "p1"),) if seed % 7 == 0 else (),
        alone=seed % 3 == 0,
        checkpoints=4 * (seed % 4 == 0),
    )
    play(world, kills=2, crashes=2, moves=2, adds=seed % 2, waits=1)
    check(world)
    job = Job(world.job.spec)
    for event in world.events:
        job, _ = decide(job, event)
    assert job == world.job
