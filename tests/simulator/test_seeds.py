"""Hundreds of worlds in which everything goes wrong; nothing happens that must never be."""

import pytest

from trainmover.controller.change.incidents import lately
from trainmover.controller.state import MachineState
from trainmover.simulator.chance import Chance
from trainmover.simulator.faults import SECOND, Faults, only
from trainmover.simulator.report import command
from trainmover.simulator.story import Result, plan_of, play
from trainmover.simulator.world import World

EACH = 50


def well(result: Result) -> None:
    assert not result.violation, f"{result.violation}\n  {command(result.plan)}"


@pytest.mark.parametrize(("seed", "machines", "standbys"), [(44502, 12, 3), (44820, 5, 2)])
def test_the_only_copy_outlives_a_process_that_cannot_run_the_script_again(
    seed: int, machines: int, standbys: int
) -> None:
    """All go back, the buddy of a rank is what was lost, and all get fresh processes."""
    well(play(plan_of(seed, machines=machines, standbys=standbys, seconds=14)))


def test_a_copy_that_becomes_the_only_one_while_all_go_back_is_given_away_too() -> None:
    """The buddy is lost, and then who has one more copy, when all have left already."""
    faults = only(["stuck", "death", "between"])
    plan = plan_of(52, machines=4, standbys=1, seconds=8, faults=faults)
    once = tuple(f"m{number}" for number in range(1, 9))
    plan.world.update(once=once, snapshots=3, alone=True, unfit=())
    well(play(plan))


@pytest.mark.turns(12)
@pytest.mark.parametrize("first", range(0, 500, EACH))
def test_whatever_goes_wrong_the_job_goes_on_or_ends_with_the_reason(first: int) -> None:
    for seed in range(first, first + EACH):
        well(play(plan_of(seed, seconds=5)))


@pytest.mark.turns(4)
@pytest.mark.parametrize(
    ("machines", "standbys"), [(1, 1), (1, 2), (2, 1), (3, 0), (8, 8), (24, 6), (40, 10)]
)
def test_jobs_of_every_size(machines: int, standbys: int) -> None:
    """Small ones know no others to take state from; large ones lose many machines at once."""
    few = max(2, 30 // machines)
    for seed in range(few):
        well(play(plan_of(seed, machines=machines, standbys=standbys, seconds=3)))


@pytest.mark.turns(4)
@pytest.mark.parametrize(("machines", "standbys", "racks"), [(6, 4, 3), (24, 15, 3), (40, 30, 5)])
def test_a_rack_of_any_size_may_go_if_there_are_enough_standbys(
    machines: int, standbys: int, racks: int
) -> None:
    """And its machines are one loss: one incident, whatever else goes wrong next."""
    for seed in range(2):
        world = World(seed, machines=machines, standbys=standbys, racks=racks, refill=False)
        world.run(120 * SECOND, until=lambda world=world: _is_ready(world))
        before, epoch = len(lately(world.job)), world.job.epoch
        assert Chance(world, only(["rack"])).let("rack")
        gone = sum(not box.alive for box in world.boxes.values())
        assert gone - (machines + standbys) // racks in (0, 1)
        world.run(20 * SECOND, until=lambda world=world, epoch=epoch: _went_on(world, epoch))
        assert world.ended is None
        new = lately(world.job)[before:]
        assert [(i.outcome, i.epoch, bool(i.lost)) for i in new] == [("done", epoch + 1, True)]


def _is_ready(world: World) -> bool:
    job = world.job
    warm = {*job.seats} | {m.id for m in job.machines.values() if m.state is MachineState.WARM}
    return job.all_recorded and job.change is None and len(warm) == len(world.boxes)


def _went_on(world: World, epoch: int) -> bool:
    job = world.job
    return job.epoch > epoch and job.change is None and job.incidents[-1].outcome != "open"


@pytest.mark.turns(4)
@pytest.mark.parametrize("faults", ["move", "death,move", "controller,crash", "reset,freeze,cut"])
def test_one_thing_at_a_time_never_ends_a_job(faults: str) -> None:
    """State lies with two machines, so one may be lost."""
    alone = Faults(only(faults.split(",")).weights, unsettled_max=1, together=0.0)
    for seed in range(10):
        plan = plan_of(seed, seconds=5, faults=alone)
        plan.early = plan.stops = plan.stops_early = False
        plan.bug = ""
        plan.world |= {"unfit": (), "others": (), "corrupts": 0.0, "lacks": 0.0}
        result = play(plan)
        well(result)
        assert result.world.ended is not None
        assert result.world.ended.code == 0, f"{result.world.ended}\n  {command(plan)}"


@pytest.mark.turns(4)
def test_a_torn_journal_costs_machines_and_nothing_else() -> None:
    """Also where a second crash tears what the first has left before all machines are back."""
    now_and_then = Faults(only(["torn"]).weights, pause_us=3_000_000)
    for seed in range(20):
        well(play(plan_of(seed, seconds=5, faults=now_and_then)))


def test_a_seed_is_the_only_chance() -> None:
    first, again = play(plan_of(7, seconds=5)), play(plan_of(7, seconds=5))
    assert first.world.disk.records == again.world.disk.records


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 11_000, 250))
def test_ten_thousand_more(first: int) -> None:
    for seed in range(first, first + 250):
        well(play(plan_of(seed)))


@pytest.mark.turns(4)
@pytest.mark.parametrize(
    "faults", ["roll", "place", "roll,place,death,controller", "roll,place,cordon,drain,move,crash"]
)
def test_plans_come_to_an_end_whatever_happens(faults: str) -> None:
    for seed in range(4):
        well(play(plan_of(seed, seconds=4, faults=only(faults.split(",")))))


@pytest.mark.turns(4)
@pytest.mark.parametrize("faults", ["examine,death,reset", "examine,arrive,controller,cordon"])
def test_who_is_not_fit_takes_no_ranks_whatever_happens(faults: str) -> None:
    for seed in range(6):
        plan = plan_of(seed, seconds=4, faults=only(faults.split(",")))
        plan.world |= {"health": "act", "sick": ("m6",)}
        well(play(plan))


@pytest.mark.turns(4)
@pytest.mark.parametrize("faults", ["narrow", "narrow,straggle,heavy", "narrow,arrive,death,move"])
def test_slow_ways_are_found_and_nobody_is_moved_for_others(faults: str) -> None:
    for seed in range(6):
        plan = plan_of(seed, seconds=30, faults=only(faults.split(",")))
        plan.world |= {"stragglers": "act"}
        well(play(plan))


@pytest.mark.turns(4)
@pytest.mark.parametrize("faults", ["sign,death,reset", "sign,arrive,controller,notice,roll"])
def test_who_seems_about_to_fail_gives_its_ranks_up_whatever_happens(faults: str) -> None:
    for seed in range(8):
        plan = plan_of(seed, seconds=4, faults=only(faults.split(",")))
        plan.world |= {"anomalies": "act"}
        well(play(plan))


@pytest.mark.turns(4)
@pytest.mark.parametrize("notices", ["act", "watch"])
def test_who_will_be_taken_away_and_who_is_drained_gives_its_ranks_up(notices: str) -> None:
    for seed in range(8):
        faults = only(["notice", "drain", "move", "arrive", "controller"])
        plan = plan_of(seed, seconds=4, faults=faults)
        plan.world |= {"notices": notices}
        well(play(plan))


@pytest.mark.turns(4)
def test_machines_may_be_cordoned_at_any_moment() -> None:
    faults = only(["cordon", "death", "move", "crash", "controller"])
    for seed in range(8):
        well(play(plan_of(seed, seconds=4, faults=faults)))
