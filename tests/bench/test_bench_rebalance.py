"""What changes cost follows from their pauses, and claims fail where they should."""

from dataclasses import replace

import pytest

from bench.rebalance import Ran, judge, tabulated

RAN = Ran(
    machines=4, every_s=10.0, over_s=30.0, step_ms=100.0, pauses_ms=[40.0, 60.0, 80.0],
    late_s=[0.4, 0.5, 0.6], equal=True,
)  # fmt: skip


def test_lost_is_the_sum_of_pauses_of_the_time() -> None:
    assert RAN.lost == pytest.approx(100 * 0.18 / 30)
    assert RAN.lost_every(600) == pytest.approx(100 * 0.06 / 600)


def test_all_claims_hold_for_such_runs_and_each_fails_for_others() -> None:
    assert [claim.holds for claim in judge([RAN])] == [True] * 3
    longer = replace(RAN, pauses_ms=[400.0] * 3)
    assert [claim.holds for claim in judge([longer])] == [False, True, True]
    longest = replace(RAN, pauses_ms=[700.0] * 3)
    assert [claim.holds for claim in judge([longest])] == [False, False, True]
    assert [claim.holds for claim in judge([replace(RAN, equal=False)])] == [True, True, False]


@pytest.mark.parametrize(("pause_ms", "said"), [(20_000.0, "100.00 %"), (2_000.0, "20.00 %")])
def test_a_restart_takes_its_pause_from_the_time_that_was_to_train(
    pause_ms: float, said: str
) -> None:
    *_, last = tabulated([RAN], [], [pause_ms])
    assert f"Every 10 s it loses {said}" in last
