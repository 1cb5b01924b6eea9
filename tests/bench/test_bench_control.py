"""The control bench: its machines lead a job through a start and a loss; what is claimed of it."""

from dataclasses import replace
from typing import Any

import pytest

from bench.control import __main__ as control
from bench.control.live import NO_RELAYS, Live, measured
from bench.control.machines import Machines
from trainmover.controller.state import Outcome, Phase


def test_machines_start_a_job_and_take_the_place_of_many_that_are_lost() -> None:
    world = Machines(12, standbys=4)
    started = sum(1 for _ in world.play(world.joins))
    assert world.job.phase is Phase.RUNNING
    assert world.job.all_recorded
    assert started > 12 * 4
    lost = ["m2", "m3", "m5", "m7"]
    events = sum(1 for _ in world.play([world.loss(lost)]))
    assert events > 12 * 4
    assert world.job.change is None
    assert not set(lost) & set(world.job.seats)
    assert [one.outcome for one in world.job.incidents] == [Outcome.DONE]


@pytest.mark.parametrize(
    ("slow", "failed"),
    [
        ({}, 0),
        ({"us": {"tick": 21.0, "snapped": 19.0}}, 1),
        ({"incident_s": 5.1}, 1),
    ],
)
def test_the_largest_job_is_judged_by_the_smallest(slow: dict[str, Any], failed: int) -> None:
    small = control.Size(10, 0.1, 0.1, 50, {"tick": 10.0, "snapped": 10.0})
    large = control.Size(100, 1.0, 1.0, 500, {"tick": 19.0, "snapped": 19.0})
    judged = control.judge([small, replace(large, **slow)], 0.5, 200.0, 40.0)
    assert sum(not claim.holds for claim in judged) == failed


def test_a_journal_of_an_hour_is_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "JOURNAL_RANKS", 200)
    monkeypatch.setattr(control, "JOURNAL_STEPS", 20)
    assert 4 < control.journal_an_hour() < 20


@pytest.mark.parametrize(("slow", "failed"), [({}, 0), ({"cpu_s": 0.6, "status_s": 0.06}, 2)])
def test_a_controller_with_agents_is_judged(slow: dict[str, Any], failed: int) -> None:
    live = Live(2000, 0, 8, 5, 0.4, 0.1, 1.0, 9.0, 0.04, 90.0)
    assert sum(not claim.holds for claim in control.judge_live(replace(live, **slow))) == failed
    assert len({line.count("|") for line in control.tabulated_live(live)}) == 1


@pytest.mark.parametrize(("cpu_s", "failed"), [(0.29, 0), (0.31, 1)])
def test_relays_are_judged_beside_a_run_without(cpu_s: float, failed: int) -> None:
    live = Live(2000, 0, 8, 5, 0.4, 0.1, 1.0, 9.0, 0.04, 90.0)
    carried = replace(live, carried=1900, cpu_s=cpu_s)
    assert sum(not claim.holds for claim in control.judge_carried(live, carried)) == failed
    assert len({line.count("|") for line in control.tabulated_live(live, carried)}) == 1


@pytest.mark.parametrize("above", [NO_RELAYS, 6])
def test_agents_that_only_speak_lead_a_real_controller_through_a_loss(above: int) -> None:
    live = measured(agents=6, nproc=2, steps=2, relays_above=above)
    assert (live.carried > 0) == (above == 6)
    assert min(live.cpu_s, live.orders_s, live.status_s) > 0
    assert 0 < live.heard_s <= live.recovered_s
