# SPDX-License-Identifier: Apache-2.0
"""The stores of a run, in a child of ours, and others when that is lost."""

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainmover.errors import JobFailed
from trainmover.launch.fork_server import ForkServerProcess
from trainmover.launch.local import Process, signal_process, spawn
from trainmover.lifeline import when_ended
from trainmover.tls.files import TlsFiles

STORE_MODULE = "trainmover.server.store"
LOSSES_MAX = 10
LOSSES_S = 60.0
_LOST_TOO_OFTEN = (
    f"The key-value store's process ended more than {LOSSES_MAX} times within {LOSSES_S:.0f} s.\n"
    "The job has ended: its groups could not be built again after the next loss.\n"
    "Look at the memory of this machine, then start the job again."
)
_NO_OTHER = (
    "The key-value store's process has ended, and another could not be started.\n"
    "The job has ended: its groups could not be built again after the next loss.\n"
    "Its output above says why; look at the memory of this machine."
)


@dataclass(frozen=True)
class ListensAt:
    """Where machines come to the stores: address of this host, the secrets' files."""

    host: str
    token_file: Path
    tls: TlsFiles | None = None


class StoreProcess:
    """One process. port: a pipe on which it says where it listens, or its listener does."""

    def __init__(self, fork_server: ForkServerProcess | None, at: ListensAt) -> None:
        port, stdout = os.pipe()
        self.port = os.fdopen(port, "rb")
        self._host = at.host
        arguments = ["--parent", str(os.getpid())]
        arguments += ["--listen", at.host, "--token-file", str(at.token_file)]
        arguments += at.tls.flags() if at.tls is not None else []
        self._process = _start(fork_server, arguments, stdout)
        os.close(stdout)

    @property
    def pid(self) -> int:
        return self._process.pid

    def address(self) -> str:
        """host:port; blocks until it listens, which `port` shows. "" if it has ended."""
        line = self.port.readline().strip()
        return f"{self._host}:{int(line)}" if line else ""

    def stop(self) -> None:
        signal_process(self._process, signal.SIGKILL)
        self._process.wait()
        self.port.close()


class KeptStore:
    """The store at `address`, one process after another.

    moved  told of the address of one that has taken the place of another
    lost   told, in three lines, that there is none any more
    """

    def __init__(
        self,
        fork_server: ForkServerProcess | None,
        at: ListensAt,
        *,
        moved: Callable[[str], None],
        lost: Callable[[str], None],
    ) -> None:
        self.address = ""
        self._fork_server = fork_server
        self._at = at
        self._moved = moved
        self._lost = lost
        self._process: StoreProcess | None = None
        self._unwatch: Callable[[], None] | None = None
        self._losses: deque[float] = deque(maxlen=LOSSES_MAX)

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    def start(self) -> None:
        """Blocks for the moment until it listens. Raises JobFailed if it ended."""
        self._begin()
        assert self._process is not None
        self.address = self._process.address()
        if not self.address:
            raise JobFailed(
                "The key-value store could not be started.",
                means="Nothing else was started.",
                do="Its output above says why; is torch installed?",
            )

    def stop(self) -> None:
        if self._process is None:
            return
        if self._unwatch is not None:
            self._unwatch()
        asyncio.get_running_loop().remove_reader(self._process.port)
        self._process.stop()
        self._process = None

    def _begin(self) -> None:
        self._process = StoreProcess(self._fork_server, self._at)
        loop = asyncio.get_running_loop()
        self._unwatch = when_ended(loop, self._process.pid, self._ended)

    def _ended(self) -> None:
        loop = asyncio.get_running_loop()
        self.stop()
        if len(self._losses) == LOSSES_MAX and loop.time() - self._losses[0] < LOSSES_S:
            self._lost(_LOST_TOO_OFTEN)
            return
        self._losses.append(loop.time())
        try:
            self._begin()
        except OSError:
            self._lost(_NO_OTHER)
            return
        assert self._process is not None
        loop.add_reader(self._process.port, self._listens)

    def _listens(self) -> None:
        assert self._process is not None
        asyncio.get_running_loop().remove_reader(self._process.port)
        address = self._process.address()
        if address:
            self.address = address
            self._moved(address)


def _start(fork_server: ForkServerProcess | None, arguments: list[str], stdout: int) -> Process:
    if fork_server is not None:
        with suppress(OSError):
            return fork_server.bear(STORE_MODULE, arguments, stdout)
    command = [sys.executable, "-P", "-m", STORE_MODULE, *arguments]
    return spawn(command, "", stdout=stdout, stderr=None)
