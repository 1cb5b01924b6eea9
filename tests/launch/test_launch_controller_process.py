"""The supervisor ends, whatever its controller does."""

import asyncio
import subprocess
from typing import Any

import pytest

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
