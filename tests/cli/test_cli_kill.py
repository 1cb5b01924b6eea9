"""`trainmover kill`: nobody ends a job by it who has not agreed to that."""

import io
from typing import Any

import pytest

from trainmover.cli.main import main
from trainmover.cli.steer import kill

ENDS = "No standby: this ends the job."


class FakeClient:
    """A job without a standby. asked: what came."""

    def __init__(self, _: object) -> None:
        self.asked = asked_for

    def loss(self, machine: str) -> dict[str, Any]:
        return {"machine": machine, "ends": True, "text": ENDS}

    def ask(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((what, body))
        return {"ok": body["force"], "text": "Killed." if body["force"] else ENDS}


asked_for: list[Any] = []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for.clear()
    monkeypatch.setattr(kill, "Client", FakeClient)
    monkeypatch.setattr(kill, "which_run", lambda options: None)


@pytest.mark.parametrize(
    ("answer", "force", "code"), [("y\n", True, 0), ("\n", False, 1), ("", False, 1)]
)
def test_at_a_terminal_it_asks(
    answer: str, force: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("sys.stderr", shown)
    assert main(["kill", "m1"]) == code
    assert f"{ENDS} Kill m1? [y/N]" in shown.getvalue()
    assert asked_for == [("kill", {"machine": "m1", "force": force})]


def test_elsewhere_it_is_refused_without_force(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kill", "m1"]) == 1
    assert ENDS in capsys.readouterr().out
    assert main(["kill", "m1", "--force"]) == 0
    assert [body["force"] for _, body in asked_for] == [False, True]
