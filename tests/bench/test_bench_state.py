"""The pure parts of the state bench: what is claimed from which figures, and the table."""

import pytest

from bench.state import __main__ as state
from bench.state.ends import MB, End


@pytest.fixture
def measured() -> state.Measured:
    """One round, in which everything holds."""
    speed = {f"{arm}, {n}": [1.0] for arm in ("sockets alone", "transfer") for n in (1, 4)}
    return state.Measured(
        speed=speed,
        share={1: [2.0], 2: [1.0]},
        pause={10 * MB: [0.01, 0.03, 0.02]},
        limits={250 * MB: [2.1]},
        early={state.ALL_IN_PAUSE: [0.6], state.EARLY: [0.15]},
        sent={state.ALL_IN_PAUSE: [100 * MB], state.EARLY: [10 * MB]},
        over=[2**20, 2**22],
    )


def test_every_claim_is_made_from_pairs(measured: state.Measured) -> None:
    claims = {claim.claim: claim for claim in state.judge(measured)}
    assert all(claim.holds for claim in claims.values())
    assert claims["two limited sources: time / one's"].value == 0.5
    assert claims["nine tenths sent early: pause / without"].value == 0.25
    assert claims["bytes sent in it / without"].value == 0.1
    assert claims["memory beyond the state"].value == 4.0


def test_a_disturbed_round_counts_for_neither_arm(measured: state.Measured) -> None:
    measured.speed["transfer, 1"] = [1.1, 11.0, 1.1]
    measured.speed["sockets alone, 1"] = [1.0, 10.0, 1.0]
    assert state.judge(measured)[0].value == pytest.approx(1.1)


def test_a_transfer_that_is_too_slow_does_not_hold(measured: state.Measured) -> None:
    measured.speed["transfer, 4"] = [1.3]
    assert [claim.holds for claim in state.judge(measured)] == [True, False, *[True] * 4]


def test_the_table_has_speed_and_pause(measured: state.Measured) -> None:
    table = state.tabulated(measured, state.QUICK)
    assert "| transfer, 4 connections | 0.26 (0.26) |" in table
    assert "| 10 MB | none | 20 (10, 30, 20) |" in table
    assert "| 128 MB | 0.25 | 2100 (2100) |" in table


def test_an_end_takes_what_another_serves() -> None:
    source, joiner = End(0), End(1)
    assert source.build(3 * MB, 1.0) == joiner.build(3 * MB, 0.0) == 1
    try:
        took_s, _, sent = joiner.take([source.serve()])
    finally:
        source.close()
        joiner.close()
    assert took_s > 0
    assert sent == 3 * MB
    assert joiner._tracked.digest() == source._tracked.digest()
