"""A drill happens at its point of its step, on its machine, once; a wrong one is refused."""

import os
import signal

import pytest

from trainmover.errors import UserError
from trainmover.worker import drill
from trainmover.worker.drill import Drill, Drills, parse


def test_what_can_be_asked_for() -> None:
    assert parse("m2:gate:20:kill,m1:compute:3:crash") == [
        Drill("m2", "gate", 20, "kill", 0.5),
        Drill("m1", "compute", 3, "crash", 0.5),
    ]
    assert parse("m2:fetch:0:sleep=0.25") == [Drill("m2", "fetch", 0, "sleep", 0.25)]
    assert parse("m2:passed:1:sleep")[0].amount == 0.5
    assert parse("") == parse(",") == []


@pytest.mark.parametrize(
    "text",
    [
        "m2",
        "m2:gate:20",
        "m2:gate:20:kill:now",
        ":gate:20:kill",
        "m2:nowhere:20:kill",
        "m2:gate:soon:kill",
        "m2:gate:-1:kill",
        "m2:gate:²:kill",
        "m2:gate:20:explode",
        "m2:gate:20:sleep=long",
        "m2:gate:20:sleep=",
        "m2:gate:20:kill,oops",
    ],
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="TRAINMOVER_DRILL has"):
        parse(text)


@pytest.mark.parametrize(("point", "step"), [("gate", 3), ("compute", 2), ("passed", 2)])
def test_nothing_happens_elsewhere(point: str, step: int) -> None:
    Drills(parse("m2:gate:2:raise"), "m2").at(point, step)


def test_nothing_happens_on_another_machine() -> None:
    Drills(parse("m2:gate:2:raise"), "m1").at("gate", 2)


def test_a_drill_happens_once_so_that_the_step_can_be_run_again() -> None:
    drills = Drills(parse("m2:gate:2:raise"), "m2")
    with pytest.raises(RuntimeError, match="a drill at gate of step 2"):
        drills.at("gate", 2)
    drills.at("gate", 2)


def test_two_drills_of_one_point_happen_one_after_the_other() -> None:
    drills = Drills(parse("m2:gate:2:raise,m2:gate:2:raise"), "m2")
    for _ in range(2):
        with pytest.raises(RuntimeError):
            drills.at("gate", 2)
    drills.at("gate", 2)


@pytest.mark.parametrize(
    ("action", "killed"),
    [("kill", [os.getppid(), os.getpid()]), ("crash", [os.getpid()])],
)
def test_a_kill_takes_the_agent_first_and_a_crash_the_worker_alone(
    action: str, killed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(drill.os, "kill", lambda pid, number: sent.append((pid, number)))
    Drills(parse(f"m2:gate:2:{action}"), "m2").at("gate", 2)
    assert sent == [(pid, signal.SIGKILL) for pid in killed]


def test_a_late_rank_sleeps_as_long_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(drill.time, "sleep", slept.append)
    Drills(parse("m2:fetch:2:sleep=0.25"), "m2").at("fetch", 2)
    assert slept == [0.25]


def test_drills_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINMOVER_DRILL", raising=False)
    monkeypatch.setenv("TRAINMOVER_MACHINE", "m2")
    Drills.from_environment().at("gate", 2)
    monkeypatch.setenv("TRAINMOVER_DRILL", "m2:gate:2:raise")
    with pytest.raises(RuntimeError):
        Drills.from_environment().at("gate", 2)
