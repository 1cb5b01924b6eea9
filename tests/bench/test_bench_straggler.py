"""What a slow machine is said to cost follows from the steps, and claims fail where they should."""

from dataclasses import replace

import pytest

from bench.straggler.__main__ import judge, tabulated
from bench.straggler.arms import Episode, Ran
from bench.straggler.cost import cost_us
from trainmover.controller.events import SlowFound
from trainmover.ids import Epoch, MachineId, Rank, Step


def episode(kind: str = "machine", after: int = 8, said: str = "") -> Episode:
    found = SlowFound(
        at_us=0, epoch=Epoch(1), machine=MachineId("m3"), kind=said or kind, ranks=[Rank(2)],
        step=Step(75 + after), steps=7, own_ms=120.0, usual_ms=100.0,
    )  # fmt: skip
    return Episode(kind, "m3", 75, found)


ACTS = Ran(0, [100.0] * 75 + [120.0] * 9 + [140.0] + [100.0] * 15, [episode()], [40.0])
NOTHING = Ran(0, [100.0] * 75 + [120.0] * 25, [episode()])
OFTEN = Ran(0, [100.0] * 50 + ([120.0] * 10 + [100.0] * 40) * 2, [episode(), episode()])
IDLE = Ran(0, [100.0] * 50 + [120.0] * 100, [episode(), episode()])
BOTH = Ran(0, [100.0] * 100, [episode(), episode("rank")] * 10)


def test_lost_is_what_steps_take_more_than_usual() -> None:
    assert ACTS.lost(75) == pytest.approx(220 / 10_220)
    assert NOTHING.lost(75) == pytest.approx(500 / 10_500)


def test_all_claims_hold_for_such_runs_and_each_fails_for_others() -> None:
    good = ([ACTS], [NOTHING], [OFTEN], [IDLE], BOTH)
    assert [claim.holds for claim in judge(*good)] == [True] * 7
    late = replace(ACTS, episodes=[episode(after=30)])
    assert [claim.holds for claim in judge([late], *good[1:])][1] is False
    assert [claim.holds for claim in judge([NOTHING], *good[1:])][2:4] == [False, False]
    assert [claim.holds for claim in judge(*good[:2], [IDLE], [IDLE], BOTH)][4:6] == [False, False]
    wrong = replace(BOTH, episodes=[episode("rank", said="machine")] * 2 + BOTH.episodes[2:])
    assert [claim.holds for claim in judge(*good[:4], wrong)][6] is False
    never = replace(BOTH, episodes=[Episode("machine", "m3", 75)] * 2 + BOTH.episodes[2:])
    assert [claim.holds for claim in judge(*good[:4], never)][6] is False


def test_a_quick_run_claims_nothing_of_what_it_leaves_out() -> None:
    assert len(judge([ACTS], [NOTHING], [], [], BOTH)) == 5


def test_what_own_times_cost_is_measured() -> None:
    assert 0 < cost_us() < 1000


def test_the_restart_beside_it_counts_the_slow_steps_before_it_too() -> None:
    table = tabulated([ACTS], [NOTHING], [OFTEN], [IDLE], BOTH, 5_000.0)
    restart = next(line for line in table if "restart" in line)
    assert f"{100 * (160 + 5_000) / (10_000 + 160 + 5_000):.1f}" in restart
