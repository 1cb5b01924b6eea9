"""A machine that is lost again and again stays out for longer and longer."""

from dataclasses import replace

import pytest

from tests.controller.jobs import RUNNING, after, joined, lost
from trainmover.controller.standby.flapping import HOUR_US, quarantine_s, quarantined

S = 1_000_000


def lost_at(*moments_s: int) -> dict[int, float]:
    """Seconds of quarantine right after each of the losses of m4, a standby."""
    job, waits = RUNNING, {}
    for moment in moments_s:
        job, _ = after(job, lost("m4", at_us=moment * S))
        waits[moment] = quarantine_s(job, "m4", "h", moment * S)
        job, _ = after(job, joined("m4", standby=True))
    return waits


def test_the_first_loss_costs_nothing_and_the_next_ones_twice_as_much_each() -> None:
    assert list(lost_at(10, 20, 60, 200, 400).values()) == [0.0, 30.0, 60.0, 120.0, 240.0]


def test_an_hour_is_the_longest() -> None:
    assert max(lost_at(*range(10, 310, 10)).values()) == 3600.0


def test_any_number_of_losses_is_an_hour_at_most() -> None:
    job = replace(RUNNING, losses={("m4", "h"): (S,) * 3000})
    assert quarantine_s(job, "m4", "h", S) == 3600.0


def test_after_an_hour_without_a_loss_all_is_forgotten() -> None:
    assert lost_at(10, 3609)[3609] == 30.0
    assert lost_at(10, 3610)[3610] == 0.0


def test_the_wait_passes_and_others_are_not_meant() -> None:
    job, _ = after(RUNNING, lost("m4"), joined("m4", standby=True), lost("m4", at_us=S))
    assert quarantined(job, 2 * S) == {"m4": 29.0}
    assert quarantine_s(job, "m4", "h", 31 * S) == 0.0
    assert quarantine_s(job, "m4", "other host", 2 * S) == 0.0
    assert quarantine_s(job, "m5", "h", 2 * S) == 0.0
    assert quarantined(job, HOUR_US) == {}


@pytest.mark.parametrize("moments", [(5, 6), (100, 200, 300)])
def test_a_loss_is_kept_only_for_the_machine_that_had_it(moments: tuple[int, ...]) -> None:
    job = RUNNING
    for moment in moments:
        job, _ = after(job, lost("m4", at_us=moment * S), joined("m4", standby=True))
    assert set(job.losses) == {("m4", "h")}
    assert len(job.losses["m4", "h"]) == len(moments)
