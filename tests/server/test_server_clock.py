"""The host's clock is set by hours while a job runs: its waits last as long as they should."""

import time
from dataclasses import dataclass

import pytest

from trainmover.server.clock import Clock

HOUR_US = 3_600_000_000
SECOND_US = 1_000_000


@dataclass
class Host:
    wall_us: int = 10 * HOUR_US
    passed_us: int = 77

    def clock(self, least_us: int = 0) -> Clock:
        return Clock(
            least_us=least_us, wall_us=lambda: self.wall_us, passed_us=lambda: self.passed_us
        )


@pytest.mark.parametrize("set_by_us", [-HOUR_US, 61 * SECOND_US])
def test_a_clock_that_is_set_changes_no_wait(set_by_us: int) -> None:
    host = Host()
    clock = host.clock()
    began = clock.now()
    assert began == host.wall_us
    host.wall_us += set_by_us
    for seconds in (1, 30, 29):
        host.passed_us += seconds * SECOND_US
    assert clock.now() - began == 60 * SECOND_US


def test_a_successor_goes_on_from_the_journal_though_the_clock_was_put_back() -> None:
    host = Host()
    ended = host.clock().now() + 5
    host.wall_us -= HOUR_US
    successor = host.clock(least_us=ended)
    assert successor.now() == ended
    host.passed_us += 3 * SECOND_US
    assert successor.now() == ended + 3 * SECOND_US, "it does not stand still for an hour"


def test_the_real_one_is_about_the_time_of_day() -> None:
    clock = Clock(least_us=0)
    first = clock.now()
    assert abs(first - time.time_ns() // 1000) < HOUR_US
    assert clock.now() >= first
