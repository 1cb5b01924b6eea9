# SPDX-License-Identifier: Apache-2.0
"""The adapter of a run's engine as a child of the supervisor; another takes its place if it dies.

At the end it is asked to go, and ends the machines that it has started.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from trainmover.lifeline import when_ended

AGAIN_S = 1.0
END_S = 30.0
"""For which the adapter may take to have all machines ended; a scheduler may be slow."""


class EngineProcess:
    """One process after another, in a session of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._unwatch: Callable[[], None] | None = None
        self._again: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """It waits for the controller by itself."""
        command = [sys.executable, "-P", "-m", "trainmover.engines"]
        command += ["--run-dir", str(self._directory), "--parent", str(os.getpid())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        loop = asyncio.get_running_loop()
        self._unwatch = when_ended(loop, self._process.pid, self._ended)

    async def stop(self) -> None:
        """Have it end its machines; not for ever."""
        if self._again is not None:
            self._again.cancel()
        if self._unwatch is not None:
            self._unwatch()
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self._process.wait, END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ended(self) -> None:
        assert self._process is not None
        if self._process.wait():
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(AGAIN_S, self.start)
