"""Moves that nobody asked for and that come to nothing are tried again later each time."""

from dataclasses import replace

import pytest
from jobs import RUNNING

from trainmover.controller.change.backoff import (
    DOUBLED_MAX,
    FREE,
    let_retry,
    move_failed,
    move_went_well,
    retry_due,
    retry_us,
)
from trainmover.ids import MachineId

M1, M2, M3 = map(MachineId, ("m1", "m2", "m3"))


@pytest.mark.parametrize(
    ("failures", "wait_s"),
    [(1, 0), (FREE - 1, 0), (FREE, 1), (FREE + 1, 2), (FREE + DOUBLED_MAX, 64), (FREE + 50, 64)],
)
def test_the_first_tries_follow_at_once_and_each_later_wait_is_twice_as_long(
    failures: int, wait_s: int
) -> None:
    job = RUNNING
    for _ in range(failures):
        job = move_failed(job, [M1], at_us=500)
    assert retry_us(job, M1) == (500 + 1_000_000 * wait_s if wait_s else 0)
    assert retry_us(job, M2) == 0


def test_a_move_that_goes_well_is_forgotten_and_those_of_other_machines_are_not() -> None:
    job = move_failed(RUNNING, [M1, M2], at_us=0)
    assert move_went_well(job, [M2, M3]).failed_moves == {M1: (1, 0)}
    assert move_went_well(job, [M3]) is job


def test_a_wait_is_over_at_its_end_and_other_waits_go_on() -> None:
    job = replace(RUNNING, failed_moves={M1: (4, 1000), M2: (4, 1001), M3: (1, 0)})
    assert (retry_due(job, 999), retry_due(job, 1000)) == (False, True)
    assert let_retry(job, 999) is job
    assert let_retry(job, 1000).failed_moves == {M1: (4, 0), M2: (4, 1001), M3: (1, 0)}
    assert not retry_due(let_retry(job, 1001), 10**9), "no wait is left"
