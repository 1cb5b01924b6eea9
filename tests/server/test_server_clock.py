"""The host's clock is set by hours while a job runs: its waits last as long as they should."""

import time
from dataclasses import dataclass

import pytest

from trainmover.server.clock import STOOD_US, Clock

HOUR_US = 3_600_000_000
SECOND_US = 1_000_000


@dataclass
class Host:
    wall_us: int = 10 * HOUR_US
    passed_us: int = 77

    def clock(self, newest_us: int = 0) -> Clock:
        return Clock(
            newest_us=newest_us, wall_us=lambda: self.wall_us, passed_us=lambda: self.passed_us
        )


@pytest.mark.parametrize("set_by_us", [-HOUR_US, 61 * SECOND_US])
def test_a_clock_that_is_set_changes_no_wait(set_by_us: int) -> None:
    host = Host()
    clock = host.clock()
    began = clock.now()
    assert began == host.wall_us
    host.wall_us += set_by_us
    for _ in range(60 * 5):
        host.passed_us += SECOND_US // 5
        clock.now()
    assert clock.now() - began == 60 * SECOND_US


def test_a_controller_that_was_stopped_has_decided_nothing_meanwhile() -> None:
    host = Host()
    clock = host.clock()
    told: list[int] = []
    clock.stood = told.append
    began = clock.now()
    host.passed_us += 3600 * SECOND_US
    assert clock.now() - began == STOOD_US
    assert told == [began + STOOD_US], "before anybody decides by that time"
    host.passed_us += 1000
    assert clock.now() - began == STOOD_US + 1000


@pytest.mark.parametrize("set_by_us", [-HOUR_US, 0, HOUR_US])
def test_a_successor_goes_on_from_the_journal_wherever_the_clock_was_set(set_by_us: int) -> None:
    """Nor does an outage use up a wait: no time passes while no controller decides."""
    host = Host()
    ended = host.clock().now() + 5
    host.wall_us += set_by_us
    host.passed_us += 30 * SECOND_US  # Without a controller.
    successor = host.clock(newest_us=ended)
    assert successor.now() == ended
    assert successor.wall() == host.wall_us, "for people"
    host.passed_us += STOOD_US
    assert successor.now() == ended + STOOD_US, "it does not stand still for an hour"


def test_the_real_one_is_about_the_time_of_day() -> None:
    clock = Clock(newest_us=0)
    first = clock.now()
    assert abs(first - time.time_ns() // 1000) < HOUR_US
    assert clock.now() >= first
