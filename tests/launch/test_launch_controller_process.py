"""The supervisor ends, whatever its controller does."""

import asyncio
import errno
import os
import subprocess
from typing import Any

import pytest

from trainmover.descriptors import Shortage
from trainmover.launch.controller import control
from trainmover.launch.controller.channel import Channel
from trainmover.launch.controller.process import ControllerProcess


class Hanging:
    """A process that waits for a disk in the kernel: no signal ends it."""

    pid = 12345

    def send_signal(self, number: int) -> None: ...

    def wait(self, timeout: float) -> int:
        raise subprocess.TimeoutExpired("controller", timeout)


def test_a_controller_that_cannot_be_killed_is_left_and_named(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def run() -> None:
        place: Any = None
        over = asyncio.get_running_loop().create_future()
        controller = ControllerProcess(place, json=False, watch=False, over=over)
        controller._channel, theirs = Channel.pair()
        hanging: Any = Hanging()
        controller._process = hanging
        with theirs:
            await controller.stop()

    asyncio.run(run())
    assert "the controller (pid 12345) was killed" in capfd.readouterr().err


def test_a_controller_without_descriptors_goes_on_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    told: list[str] = []
    none: Any = None
    monkeypatch.setattr(os, "_exit", ended.append)
    shortage = Shortage("the controller", told.append)
    full = {"socket": 1, "exception": OSError(errno.EMFILE, "Too many open files")}
    for _ in range(2):
        control._fail(none, shortage, none, full)
    assert (ended, len(told)) == ([], 1)
    control._fail(none, shortage, none, {"exception": ValueError("\x1b]0;PWNED\x07")})
    assert ended == [control.FAILED]
    assert capfd.readouterr().err.endswith(r"ValueError: \x1b]0;PWNED\x07" + "\n")
