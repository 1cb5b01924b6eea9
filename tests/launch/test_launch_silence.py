"""A controller that does nothing any more is found out; one that cannot help it is not."""

import os
import signal
import subprocess
import sys
import time

import pytest

from trainmover.launch.controller.silence import LOOK_S, STOPPED_S, STUCK_S, Silence, state_of

STOPPED, STUCK = round(STOPPED_S / LOOK_S), round(STUCK_S / LOOK_S)


def looks(silence: Silence, state: str, count: int, *, expected: bool = True) -> list[str]:
    return [silence.looked(state, expected=expected) for _ in range(count)]


@pytest.mark.parametrize(("state", "bound"), [("T", STOPPED), ("t", STOPPED), ("S", STUCK)])
def test_one_that_stands_still_is_replaced_after_its_time(state: str, bound: int) -> None:
    *before, last = looks(Silence(), state, bound)
    assert (any(before), bool(last)) == (False, True)


def test_one_that_answers_is_left_alone() -> None:
    silence = Silence()
    for _ in range(10):
        assert not any(looks(silence, "R", STUCK - 1))
        silence.broken()


def test_who_waits_for_a_disk_is_not_to_blame() -> None:
    assert not any(looks(Silence(), "D", 10 * STUCK))


def test_before_it_is_ready_only_being_stopped_counts() -> None:
    silence = Silence()
    assert not any(looks(silence, "R", 10 * STUCK, expected=False))
    assert looks(silence, "T", STOPPED, expected=False)[-1]


def test_being_stopped_for_a_moment_is_forgotten() -> None:
    silence = Silence()
    for _ in range(4):
        assert not any(looks(silence, "T", STOPPED - 1))
        assert not any(looks(silence, "S", 1))


def test_what_a_process_does_is_seen() -> None:
    source = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE) as process:
        os.kill(process.pid, signal.SIGSTOP)
        until(process.pid, "T")
        os.kill(process.pid, signal.SIGCONT)
        until(process.pid, "S")
        process.kill()
    assert state_of(process.pid) == ""


def until(pid: int, state: str) -> None:
    deadline = time.monotonic() + 30
    while state_of(pid) != state:
        assert time.monotonic() < deadline, state_of(pid)
        time.sleep(0.01)
