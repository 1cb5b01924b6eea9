"""When a device counts as hung: by what it completes, and by how long the script's steps are."""

from types import SimpleNamespace

import pytest

from trainmover.comm import progress
from trainmover.comm.progress import QUIET_S, Pace, Stall


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def make_step(pace: Pace, clock: Clock, seconds: float, *, is_broken: bool = False) -> None:
    pace.start_step()
    clock.now += seconds
    if is_broken:
        pace.discard_step()
    pace.finish_step()


def test_patience_is_twice_the_longest_step_and_never_short(clock: Clock) -> None:
    pace = Pace()
    assert pace.patience_s == QUIET_S
    make_step(pace, clock, 1.0)
    assert pace.patience_s == QUIET_S
    make_step(pace, clock, 30.0)
    make_step(pace, clock, 4.0)
    assert pace.patience_s == 60.0


def test_a_step_that_is_broken_off_says_nothing(clock: Clock) -> None:
    pace = Pace()
    make_step(pace, clock, 600.0, is_broken=True)
    assert pace.patience_s == QUIET_S


def test_a_first_step_that_compiles_is_forgotten(clock: Clock) -> None:
    pace = Pace()
    make_step(pace, clock, 600.0)
    for _ in range(100):
        make_step(pace, clock, 1.0)
    assert pace.patience_s == QUIET_S


def test_each_completed_call_starts_the_time_again(clock: Clock) -> None:
    completed = 3
    stall = Stall(lambda: completed)
    for _ in range(5):
        clock.now += 0.9 * QUIET_S
        completed += 1
        assert not stall.is_over()
    clock.now += 0.9 * QUIET_S
    assert not stall.is_over()
    clock.now += 0.2 * QUIET_S
    assert stall.is_over()
