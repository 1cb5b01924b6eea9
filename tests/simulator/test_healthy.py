"""Outages on both sides of a deadline: nobody who is well is ended for them, and no job."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.planting import planted
from tests.simulator.test_blips import begun
from trainmover.ids import MachineId, Rank
from trainmover.protocol.messages import Leaving
from trainmover.simulator import story
from trainmover.simulator.checkers import all_checkers
from trainmover.simulator.faults import BITING, SECOND, only
from trainmover.simulator.places.network import CONTROLLER
from trainmover.simulator.ranks.workers import Worker
from trainmover.simulator.story import Plan, Result, plan_of, play
from trainmover.simulator.world import World


def trains(seed: int, for_s: int = 5, **knobs: Any) -> World:
    """All ranks train, and have for a while; no machine comes but those there are."""
    world = World(seed, wait_s=0, refill=False, checkers=all_checkers(), **knobs)
    assert world.run(60 * SECOND, until=lambda: world.job.all_recorded)
    world.run(for_s * SECOND)
    return world


def cut_off(world: World, names: list[str], from_names: list[str], for_s: float) -> None:
    """Nothing goes between the ones and the others, and then all of it."""
    ways = [(MachineId(a), MachineId(b)) for a in names for b in from_names if a != b]
    for one, other in ways:
        for way in ((one, other), (other, one)):
            world.network.cut(*way)
            world.at(int(for_s * SECOND), world.network.mend, *way)


def goes_on(world: World, for_s: int) -> None:
    newest = world.training.newest
    world.run(for_s * SECOND)
    assert world.ended is None
    assert world.training.newest > newest + 10


# --- a controller that is away --------------------------------------------------------------------


def rank_that_stands(world: World, rank: int) -> Worker:
    """It is in the script's own code, and stays there."""
    worker = next(one for one in world.workers() if one.live and one.rank == Rank(rank))
    assert world.run(SECOND, until=lambda: worker.computing)
    worker.stuck = True
    return worker


@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("told_us", [0, 4_000])
def test_a_process_may_take_as_long_to_end_as_the_controller_is_away(
    standbys: int, told_us: int
) -> None:
    """Whether or not its agent has heard the order before."""
    world = trains(5, machines=3, standbys=standbys)
    rank_that_stands(world, 1)
    assert world.run(20 * SECOND, until=lambda: bool(world.job.hanging.condemned))
    world.run(told_us)
    world.lose_controller(3 * SECOND)
    goes_on(world, 20)
    assert "m2" in world.job.machines


def test_a_process_that_goes_on_while_the_controller_is_away_is_not_ended() -> None:
    world = trains(7, machines=3, standbys=1)
    worker = next(one for one in world.workers() if one.rank == Rank(1))
    worker.stopped = True
    worker.box.process_state(worker, "stopped", 0)
    world.run(300_000)
    world.lose_controller(3 * SECOND)
    worker.go_on()
    worker.moved_us = world.now
    worker.box.process_state(worker, "", 0)
    world.run(6 * SECOND)
    assert world.process_at(f"{worker.box.name}/{worker.pid}") is worker


def test_a_wait_for_a_machine_lasts_though_the_clock_was_set_forward() -> None:
    world = World(5, machines=3, standbys=0, wait_s=600, refill=False, checkers=all_checkers())
    assert world.run(60 * SECOND, until=lambda: world.job.all_recorded)
    world.crash(MachineId("m2"))
    world.run(5 * SECOND)
    world.clock_off_us += 3600 * SECOND
    world.lose_controller(400_000)
    world.run(20 * SECOND)
    assert world.ended is None


# --- machines that are cut off for a while --------------------------------------------------------


@pytest.mark.parametrize("standbys", [0, 1])
def test_a_blip_does_not_end_a_job_whose_state_is_there_alone(standbys: int) -> None:
    world = trains(5, machines=3, standbys=standbys, alone=True, snapshots=0)
    cut_off(world, ["m2"], [*world.boxes, CONTROLLER], 2.5)
    goes_on(world, 60)


@pytest.mark.parametrize("standbys", [0, 2])
def test_a_switch_that_restarts_does_not_end_a_job(standbys: int) -> None:
    """Behind it are a machine and who keeps its snapshots."""
    world = trains(5, 30, machines=6, standbys=standbys, alone=True, snapshots=3)
    others = [name for name in world.boxes if name not in ("m2", "m3")]
    cut_off(world, ["m2", "m3"], [*others, CONTROLLER], 2.5)
    goes_on(world, 60)


def test_nobody_waits_for_a_standby_that_only_the_controller_does_not_reach() -> None:
    world = trains(7, 15, machines=4, standbys=3)
    cut_off(world, ["m7"], [CONTROLLER], 100)
    world.run(50_000)
    world.crash(MachineId("m2"))
    goes_on(world, 20)


def test_a_machine_without_power_is_given_up_later_while_no_pace_is_known() -> None:
    """After the deadline of the first steps: that is no downtime too long."""
    slow = {"held_up_s": 1.0, "held_up_first_s": 20.0}
    world = World(1, machines=3, standbys=2, deadlines=slow, checkers=all_checkers())
    assert world.run(60 * SECOND, until=lambda: world.job.all_recorded)
    world.crash(world.job.seats[1], silent=True)
    assert world.host is not None
    assert not world.host.control.absence.steps.step_ms
    world.run(15 * SECOND)
    assert world.job.incidents == ()
    goes_on(world, 15)


# --- what hangs, and what fails again and again ---------------------------------------------------


@pytest.mark.long
def test_a_part_of_a_checkpoint_that_never_comes_ends_no_checkpoints() -> None:
    """It is given up after long, and the next is written."""
    world = trains(3, machines=3, standbys=1, checkpoints=5, snapshots=5, step_us=SECOND)
    world.hung_writers.add(Rank(1))
    assert world.run(60 * SECOND, until=lambda: not world.hung_writers)
    hung = world.job.checkpointed
    world.run(1300 * SECOND)
    assert world.job.checkpoint is not None
    assert world.job.checkpoint.step > hung + 5


def test_moves_that_fail_at_once_are_not_begun_at_once_again() -> None:
    world = trains(3, machines=3, standbys=1, notices="act")
    leaves = world.boxes[world.job.seats[1]]
    world.unprepared.add(world.job.seats[0])
    leaves.say(Leaving(left_ms=60_000))
    world.run(30 * SECOND)
    assert world.job.incidents
    world.unprepared.clear()
    assert world.run(30 * SECOND, until=lambda: leaves.name not in world.job.seats)


# --- a bug that only one of the checkers finds ----------------------------------------------------

SEEDS = 12
BUGS: dict[str, tuple[Any, ...]] = {
    "a standby that only the controller does not reach is given up":
        ("server.machines.absence", "_why", "operand", 2, "NobodyHealthyIsEnded", "cut_standby",
         {}),
    "a machine without power is waited for, though others could take its ranks":
        ("server.machines.absence", "stand_still", "self.still_beats >= least",
         "self.still_beats >= 100 * least", "DowntimeBound", "power",
         {"alone": False, "snapshots": None}),
    "a machine is given up though the job ends with it":
        ("server.machines.absence", "lost", "price.ms <= 1000 * BEAT_S * self.steps.still_beats",
         "price.ms", "WaitingWouldHaveSaved", "freeze",
         {"wait_s": 0, "no_standby": "end", "refill": False}),
    "a move that nobody has asked for and that has failed is begun at once again":
        ("controller.change.backoff", "_until_us",
         "0 if count < FREE else at_us + (FIRST_US << min(count - FREE, DOUBLED_MAX))", "0",
         "Retries", "prepare_fails", {}),
}  # fmt: skip


def quiet(seed: int, fault: str, standbys: int, world: dict[str, object]) -> Plan:
    """One fault after the other, and nothing else that is special."""
    plan = plan_of(seed, standbys=standbys, nproc=1, faults=only([fault], like=BITING))
    plan.early = plan.late = plan.stops = plan.stops_early = False
    plan.bug = ""
    usual = {"stages": 1, "once": (), "unfit": (), "others": (), "old": ()}
    perfect = {"corrupts": 0.0, "lacks": 0.0}
    policies = dict.fromkeys(("health", "stragglers", "anomalies"), "off")
    plan.world |= {**usual, **perfect, **policies, "patience_s": 60.0, **world}
    plan.world["deadlines"] = None
    return plan


def results(name: str) -> list[Result]:
    *_, fault, world = BUGS[name]
    standbys = 0 if fault == "freeze" else 2
    return [play(quiet(seed, fault, standbys, world)) for seed in range(SEEDS)]


def without(checker: str) -> Callable[[], list[Any]]:
    return lambda: [one for one in all_checkers() if type(one).__name__ != checker]


@pytest.mark.long
@pytest.mark.turns(2)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_by_one_checker_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    *bug, checker, _, _ = BUGS[name]
    assert not [one.violation for one in results(name) if one.violation]
    with planted(*bug):
        assert any(one.violation for one in results(name))
        monkeypatch.setattr(story, "all_checkers", without(checker))
        assert not [one.violation for one in results(name) if one.violation]


def test_outages_are_as_long_as_the_deadlines_that_they_touch() -> None:
    """Shorter ones and longer ones, of a controller that is away."""
    world = begun(1, 2, 1)
    chance = story.Chance(world, only(["controller"], like=BITING))
    lasts = [chance._lasts_us("controller", 0, 0) / SECOND for _ in range(500)]
    assert min(lasts) < 0.5
    assert max(lasts) > 60
    assert sum(lasts) / len(lasts) < 20
