"""A policy that raises is switched off, and what the job needs goes on."""

import sys

import pytest
from jobs import RUNNING, after, lost, orders

from trainmover.controller.events import AnomalyFound
from trainmover.protocol import messages as m
from trainmover.server.view.sentences import sentence

DECIDE = sys.modules["trainmover.controller.decide"]
FOUND = AnomalyFound(at_us=5, machine="m2", sign="late", text="it is late", grave=True)  # type: ignore[arg-type]


def test_it_is_named_once_and_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def raises(*_: object) -> None:
        nonlocal asked
        asked += 1
        raise ZeroDivisionError("of nothing")

    monkeypatch.setattr(DECIDE, "anomaly_found", raises)
    job, effects = after(RUNNING, FOUND)
    assert effects == ()
    assert job.broken_policies == {"anomalies": "ZeroDivisionError: of nothing"}
    said = sentence(RUNNING, FOUND, job)
    assert said.loud
    assert "the policy anomalies has raised ZeroDivisionError" in said.text
    job, _ = after(job, FOUND)
    assert asked == 1
    _, effects = after(job, lost("m2"))
    assert orders(effects, m.Bind), "the job is recovered as ever"


def test_what_the_job_needs_is_no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(DECIDE, "machines_lost", raises)
    with pytest.raises(ZeroDivisionError):
        after(RUNNING, lost("m2"))
