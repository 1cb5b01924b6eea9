"""Hundreds of worlds in which everything goes wrong; nothing happens that must never be."""

import pytest

from trainmover.simulator.faults import Faults, only
from trainmover.simulator.report import command
from trainmover.simulator.story import Result, plan_of, play

EACH = 50


def well(result: Result) -> None:
    assert not result.violation, f"{result.violation}\n  {command(result.plan)}"


@pytest.mark.turns(8)
@pytest.mark.parametrize("first", range(0, 500, EACH))
def test_whatever_goes_wrong_the_job_goes_on_or_ends_with_the_reason(first: int) -> None:
    for seed in range(first, first + EACH):
        well(play(plan_of(seed, seconds=5)))


@pytest.mark.parametrize("faults", ["move", "death,move", "controller,crash", "reset,freeze,cut"])
def test_one_thing_at_a_time_never_ends_a_job(faults: str) -> None:
    """State lies with two machines, so one may be lost."""
    alone = Faults(only(faults.split(",")).weights, unsettled_max=1, together=0.0)
    for seed in range(10):
        plan = plan_of(seed, seconds=5, faults=alone)
        plan.early = plan.stops = False
        plan.world["unfit"] = ()
        result = play(plan)
        well(result)
        assert result.world.ended is not None
        assert result.world.ended.code == 0, f"{result.world.ended}\n  {command(plan)}"


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
