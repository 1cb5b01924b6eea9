# SPDX-License-Identifier: Apache-2.0
"""What workers print: to log files, and to the screen of whoever ran the job.

A worker must never wait because somebody does not read, so the agent always reads: log files are
written by a thread, and lines for the screen are dropped and counted while the controller does not
keep up. A script that prints in a tight loop costs one message per 50 ms, not one per line.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trainmover.ids import Rank
from trainmover.outlet import Outlet, write_all

BATCH_S = 0.05
READ_BYTES = 64 * 1024
PARTIAL_BYTES_MAX = 64 * 1024
LOG_BYTES_MAX = 1 << 30
"""A log file that has more is set aside, as NAME.1, in place of the one that was there."""
BATCH_BYTES = 256 * 1024

Lines = Callable[[bytes], None]


class StreamReader:
    """One pipe of one worker. `lines` gets whole lines; a partial one when the pipe ends."""

    def __init__(self, fd: int, lines: Lines) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._lines = lines
        self._partial = b""
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._loop.add_reader(fd, self._read_some)

    def drain(self) -> None:
        """Read all that is there now."""
        while self._open and self._read_some():
            pass

    def finish(self) -> None:
        """Read all that is there, flush the partial line, close."""
        self.drain()
        self._close()

    def _read_some(self) -> bool:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._close()
            return False
        head, newline, tail = (self._partial + data).rpartition(b"\n")
        if len(tail) > PARTIAL_BYTES_MAX:
            head, newline, tail = head + newline + tail, b"\n", b""
        self._partial = tail
        if newline:
            self._lines(head + newline)
        return True

    def _close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        if self._partial:
            self._lines(self._partial + b"\n")
            self._partial = b""


class ScreenBatch:
    """Hands lines on by rank and stream: the first at once, those that follow every 50 ms.

    clogged  whether what was handed on before has not left yet; then lines are dropped and counted
    """

    def __init__(self, send: Callable[[Rank, str, str], None], clogged: Callable[[], bool]) -> None:
        self._send = send
        self._clogged = clogged
        self._waiting: dict[tuple[Rank, str], list[bytes]] = {}
        self._bytes = 0
        self._dropped: dict[tuple[Rank, str], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, rank: Rank, stream: str, lines: bytes) -> None:
        if self._clogged():
            dropped = self._dropped.get((rank, stream), 0) + lines.count(b"\n")
            self._dropped[rank, stream] = dropped
            return
        self._own_up(rank, stream)
        self._waiting.setdefault((rank, stream), []).append(lines)
        self._bytes += len(lines)
        if self._timer is None:
            self._next_window()
        elif self._bytes > BATCH_BYTES:
            self._hand_on()

    def flush(self) -> None:
        """Hand on what waits, now."""
        for rank, stream in list(self._dropped):
            self._own_up(rank, stream)
        self._hand_on()

    def _own_up(self, rank: Rank, stream: str) -> None:
        dropped = self._dropped.pop((rank, stream), 0)
        if dropped:
            told = b"... %d lines were too many to be shown\n" % dropped
            self._waiting.setdefault((rank, stream), []).append(told)

    def _next_window(self) -> None:
        self._timer = None
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(BATCH_S, self._next_window)
            self._hand_on()

    def _hand_on(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        for (rank, stream), parts in waiting.items():
            self._send(rank, stream, b"".join(parts).decode(errors="replace"))


class LogFiles:
    """Appends to files from a thread of its own: a slow disk must not delay an order, nor a full
    one end a machine. unwritten(path, why) is called on the loop, once for a file."""

    def __init__(self, unwritten: Callable[[Path, str], None]) -> None:
        self._outlet: Outlet[Path] = Outlet(_append, self._failed)
        self._unwritten = unwritten
        self._loop = asyncio.get_running_loop()

    def append(self, path: Path, data: bytes) -> None:
        self._outlet.put(path, data)

    def close(self) -> None:
        """Return when everything is written that can be."""
        self._outlet.close()

    def _failed(self, path: Path, error: OSError) -> None:
        with suppress(RuntimeError):  # The loop is closed: nobody hears of it any more.
            self._loop.call_soon_threadsafe(self._unwritten, path, error.strerror or str(error))


def _append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if path.stat().st_size > LOG_BYTES_MAX:
            path.replace(path.with_name(f"{path.name}.1"))
    with open(path, "ab", buffering=0, opener=_for_us_only) as file:
        write_all(file.fileno(), data)


def _for_us_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
