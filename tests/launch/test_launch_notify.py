"""A command hears of losses and of the end; whatever becomes of it, the job goes on."""

import json
import shlex
import sys
import threading
from pathlib import Path

import pytest
from host_tools import Story

from trainmover.launch import notify
from trainmover.launch.notify import Notification, Notifier

KEEPS = """
import os, sys
with open(sys.argv[1], "a") as file:
    print(os.environ["TRAINMOVER_EVENT"], input(), file=file)
"""


def command(path: Path) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(KEEPS)} {shlex.quote(str(path))}"


def test_a_loss_its_end_and_that_of_the_job_are_told_in_order(tmp_path: Path) -> None:
    told = tmp_path / "told"
    story = Story(tmp_path, run_id="neat-owl", notify_cmd=command(told))
    story.when_warm(lambda h: h.kill("m1")).then_finish("downtime")
    assert story.run().code == 0
    lines = [line.partition(" ") for line in told.read_text().splitlines()]
    said = [json.loads(text) for _, _, text in lines]
    events = [event for event, _, _ in lines]
    assert sorted(events[:2]) == ["loss", "no-standby"]
    assert events[2:] == ["recovered", "ended"]
    assert [one["event"] for one in said] == events
    assert {one["run_id"] for one in said} == {"neat-owl"}
    assert [one["status"] for one in said] == [None, None, None, 0]
    texts = {one["event"]: one["text"] for one in said}
    assert "m1 was lost" in texts["loss"] or "lost a link" in texts["loss"]
    assert "downtime" in texts["recovered"]
    assert texts["no-standby"].startswith("standbys 0 of 1 ready")


def test_a_job_that_waits_says_so(tmp_path: Path) -> None:
    told = tmp_path / "told"
    story = Story(tmp_path, standbys=0, wait_s=60, notify_cmd=command(told))
    story.when("", lambda h: None)

    def lose(handle: object) -> None:
        story.handle.kill("m1")  # type: ignore[union-attr]

    story.when_safe("", lose).when("waits for a machine", lambda h: h.stop(3, "seen"))
    story.run()
    events = [line.partition(" ")[0] for line in told.read_text().splitlines()]
    assert "waiting" in events
    assert events[-1] == "ended"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("exit 3", "it ended with status 3"),
        ("no-such-command-anywhere 2>/dev/null", "it ended with status 127"),
        ("sleep 60; true", "it did not end within 0 s"),
    ],
)
def test_a_command_that_fails_is_told_of_once(
    text: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "LIMIT_S", 0.2)
    if not text.startswith("sleep"):
        monkeypatch.setattr(notify, "LIMIT_S", 20.0)
    warned: list[str] = []
    notifier = Notifier(text, "r", warned.append)
    for _ in range(3):
        notifier.tell(Notification("loss", "m1 was lost"))
    notifier.close()
    assert len(warned) == 1
    assert why in warned[0]


def test_who_hangs_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred wait; the rest is dropped, and that is said."""
    monkeypatch.setattr(notify, "WAITING_MAX", 3)
    monkeypatch.setattr(notify, "CLOSE_S", 0.1)
    begun, go = threading.Event(), threading.Event()

    def hangs(self: Notifier, notification: Notification) -> None:
        begun.set()
        go.wait(30)

    monkeypatch.setattr(Notifier, "_run", hangs)
    warned: list[str] = []
    notifier = Notifier("true", "r", warned.append)
    try:
        notifier.tell(Notification("loss", "first"))
        assert begun.wait(30)
        for number in range(9):
            notifier.tell(Notification("loss", str(number)))
        notifier.close()
        assert len(warned) == 1
        assert "one is dropped" in warned[0]
    finally:
        go.set()
