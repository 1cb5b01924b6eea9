"""A shadow run that gets nowhere is given up, busy or not; one that gets on, or waits, is not."""

import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from trainmover.worker.standing import Unwind
from trainmover.worker.watch import patience
from trainmover.worker.watch.patience import Patience

QUICK = {"POLL_S": 0.01, "STILL_S": 0.2, "CIRCLES_S": 0.1}
LIMIT_S = 30.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUICK.items():
        monkeypatch.setattr(patience, name, value)
    monkeypatch.setattr(patience, "_BUSY", -1.0)  # However little it is let run, it is busy.


def joiner(*, run_ms: int = 1, known_ms: int = 0, journey: Any = None, declared: Any = ()) -> Any:
    """What of a joiner is looked at."""
    shadow = SimpleNamespace(
        stands=threading.Event(), steps=0, known_ms=known_ms, run_ms=run_ms, given_up=False,
        waits_for_others=False, replayer=SimpleNamespace(served=0),
    )  # fmt: skip
    return SimpleNamespace(
        member=SimpleNamespace(calls=0, loops=SimpleNamespace(fetches=0)),
        shadow=shadow,
        takeover=SimpleNamespace(way=None, journey=journey),
        is_shadow=True,
        declared=declared,
    )


def circles(its: Any, seconds: float, *, gets_on: bool = False) -> list[str]:
    """What is told of a run that is busy for so long."""
    told: list[str] = []
    until = time.monotonic() + seconds
    try:
        with Patience(its, told.append):
            _turn(its, until, gets_on=gets_on)
    except Unwind:
        pass
    return told


def _turn(its: Any, until: float, *, gets_on: bool) -> None:
    """By itself: what handles exceptions is skipped by one that is raised in a loop beside it, with
    Python 3.13."""
    while time.monotonic() < until:
        its.member.calls += gets_on


@pytest.mark.parametrize("known", [{"known_ms": 5}, {"journey": "somewhere"}])
def test_one_that_runs_in_circles_is_given_up(known: dict[str, Any]) -> None:
    its = joiner(**known)
    its.shadow.stands.set() if "journey" in known else None
    (told,) = circles(its, LIMIT_S)
    assert "has got nowhere" in told
    assert "test_patience.py" in told
    assert "it runs in circles" in told
    assert its.shadow.given_up


@pytest.mark.parametrize(
    ("known", "gets_on", "parked"),
    [
        ({"known_ms": 0}, False, False),
        ({"known_ms": 1000}, False, False),
        ({"known_ms": 5}, True, False),
        ({"known_ms": 5, "declared": ["a download"]}, False, False),
        ({"known_ms": 5}, False, True),
        ({"journey": "somewhere"}, True, True),
        ({"journey": "somewhere", "run_ms": 1000}, False, True),
    ],
    ids=["the first", "slow", "gets on", "declared", "waits", "travels", "travels slowly"],
)
def test_one_that_does_not_is_left_alone(
    known: dict[str, Any], gets_on: bool, parked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if gets_on:  # Also where it is hardly let run.
        monkeypatch.setattr(patience, "CIRCLES_S", 0.5)
        monkeypatch.setattr(patience, "STILL_S", 0.5)
    its = joiner(**known)
    if parked:
        its.shadow.stands.set()
    assert circles(its, 1.2 if gets_on else 0.5, gets_on=gets_on) == []


def test_one_that_stands_still_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_BUSY", 1e9)
    (told,) = circles(joiner(), LIMIT_S)
    assert "has stood still" in told


def test_children_are_not_looked_for_while_the_process_itself_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own_s = iter(range(100))
    monkeypatch.setattr(patience, "_own_s", lambda: next(own_s))
    monkeypatch.setattr(patience, "_children_s", lambda: pytest.fail("looked for"))
    assert patience._Work().is_more_than(0.5)


def test_children_that_are_busy_are_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    children_s = 5.0
    monkeypatch.setattr(patience, "_own_s", lambda: 10.0)
    monkeypatch.setattr(patience, "_children_s", lambda: children_s)
    work = patience._Work()
    assert not work.is_more_than(3.0)  # What they had used before is none of this.
    children_s = 7.0
    assert not work.is_more_than(3.0)
    assert work.is_more_than(1.0)


BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"


def test_what_a_child_has_used_counts_while_it_lives_and_when_it_has_ended() -> None:
    before_s = patience._children_s()
    command = [sys.executable, "-c", BUSY]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as child:
        assert child.stdout.readline()
        assert patience._children_s() - before_s > 0.25
        child.communicate(b"\n")
    assert patience._children_s() - before_s > 0.25


DEAF = """
import sys, threading, time
sys.path.insert(0, {here!r})
import test_patience
from trainmover.worker.watch import patience
for name, value in test_patience.QUICK.items():
    setattr(patience, name, value)
patience.UNWIND_S = 0.1
its = test_patience.joiner(known_ms=5)
with patience.Patience(its, print):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
"""


def test_a_process_whose_script_cannot_be_unwound_ends() -> None:
    here = __file__.rpartition("/")[0]
    command = [sys.executable, "-u", "-c", DEAF.format(here=here)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, "runs in circles" in ended.stdout) == (1, True), ended.stderr
