# SPDX-License-Identifier: Apache-2.0
"""Writing that cannot fail into who writes, and does not hold him up: to a screen, a pipe, a log.

A full disk, a terminal that was closed, a reader who is gone or reads no further are no affair of a
controller's or an agent's. So a thread writes. What cannot be written is dropped and counted; it is
told once, and the count is written as soon as something can be written again.
"""

import errno
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

WAITING_BYTES_MAX = 64 * 1024 * 1024
AGAIN_S = 1.0
"""From one try to the next where there may be room again."""
_FOR_GOOD = {errno.EPIPE, errno.EIO, errno.EBADF, errno.ENXIO}

P = TypeVar("P", bound=Hashable)


@dataclass
class _Trouble:
    """Of one place. again: when to try next, None: never. lines: that were dropped since."""

    why: str
    again: float | None
    lines: int = 0

    def bars(self, now: float) -> bool:
        return self.again is None or now < self.again


class Outlet(Generic[P]):
    """write(place, data) may raise OSError; failed(place, error) hears of the first one of a place.

    Both are called by the outlet's thread, which nothing waits for: the process may end before it.
    """

    def __init__(
        self, write: Callable[[P, bytes], None], failed: Callable[[P, OSError], None]
    ) -> None:
        self._write = write
        self._failed = failed
        self._waiting: deque[tuple[P, bytes] | Callable[[], None]] = deque()
        self._bytes = 0
        self._unread: dict[P, int] = {}
        self._more = threading.Condition()
        self._thread: threading.Thread | None = None
        self._troubles: dict[P, _Trouble] = {}
        self._told: set[P] = set()

    def put(self, place: P, data: bytes) -> None:
        """Behind all that was put before."""
        with self._more:
            if self._bytes > WAITING_BYTES_MAX:
                self._unread[place] = self._unread.get(place, 0) + data.count(b"\n")
                return
            if lines := self._unread.pop(place, 0):
                data = b"... %d lines were too many to be shown\n" % lines + data
            self._bytes += len(data)
            self._hand_over((place, data))

    def then(self, act: Callable[[], None]) -> None:
        """Call `act` once all that was put before is written, or dropped."""
        with self._more:
            self._hand_over(act)

    def close(self) -> None:
        """Return when all is written, or dropped."""
        done = threading.Event()
        self.then(done.set)
        done.wait()

    def _hand_over(self, item: tuple[P, bytes] | Callable[[], None]) -> None:
        self._waiting.append(item)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="outlet", daemon=True)
            self._thread.start()
        self._more.notify()

    def _work(self) -> None:
        while True:
            with self._more:
                self._more.wait_for(lambda: self._waiting)
                item = self._waiting.popleft()
            if not isinstance(item, tuple):
                item()
                continue
            place, data = item
            self._try(place, data)
            with self._more:
                self._bytes -= len(data)

    def _try(self, place: P, data: bytes) -> None:
        trouble = self._troubles.get(place)
        if trouble is not None and trouble.bars(time.monotonic()):
            trouble.lines += data.count(b"\n")
            return
        try:
            if trouble is not None:
                gap = f"\n... {trouble.lines} lines could not be written: {trouble.why}\n"
                self._write(place, gap.encode())
            self._write(place, data)
        except OSError as error:
            lost = data.count(b"\n") + (0 if trouble is None else trouble.lines)
            again = None if error.errno in _FOR_GOOD else time.monotonic() + AGAIN_S
            self._troubles[place] = _Trouble(error.strerror or str(error), again, lost)
            if place not in self._told:
                self._told.add(place)
                self._failed(place, error)
        else:
            self._troubles.pop(place, None)


def write_all(descriptor: int, data: bytes) -> None:
    """Every byte of it, however long that takes; others may have made it one that does not wait."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            room = select.poll()
            room.register(descriptor, select.POLLOUT)
            room.poll()


def open_standard_streams() -> None:
    """Where 0, 1 or 2 was closed by who started us, have it be nothing: or the next file or socket
    that is opened would get that number, and what we print."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # The lowest that is free.
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
