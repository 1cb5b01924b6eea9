# SPDX-License-Identifier: Apache-2.0
"""Connections that somebody holds at the listeners of a run, and opens again when they are closed.

What each kind does with a connection is in `KINDS`. None of them looks anything up: another user
may not be able to read the files for that.
"""

import os
import resource
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle

HELD = 1000
AGAIN_PER_S = 100
"""How many connections that the run has closed are opened again in a second."""
SPARE = 64
"""Descriptors of the holder that are not connections."""
TURN_S = 0.1
DRIP_S = 1.0
NOBODY = 65534
Address = tuple[str, int]


@dataclass(frozen=True)
class Kind:
    """Connections of one kind: what is sent over each at once (TOKEN stands for the viewer's), and
    how many bytes more each second."""

    said: str = ""
    drip: bytes = b""
    everywhere: bool = False
    """Whether they go to all listeners of the run, in turns, and not to the HTTP API alone."""


_ASKED = "GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n"
_PROVED = "Authorization: Bearer TOKEN\r\n"
KINDS = {
    "idle": Kind(everywhere=True),
    "no token": Kind(f"{_ASKED}\r\n"),
    "viewer": Kind(f"{_ASKED}{_PROVED}\r\n"),
    "half request": Kind(f"{_ASKED}X-Slow: ", drip=b"x"),
    "slow body": Kind(
        "POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n"
        f"{_PROVED}\r\n{{",
        drip=b" ",
    ),
    "streams": Kind(
        "GET /api/v1/events?pulse=true HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Accept: text/event-stream\r\n{_PROVED}\r\n"
    ),
}


def most_held() -> int:
    """How many connections a process of this user may hold, of HELD."""
    return min(HELD, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - SPARE)


class Holder:
    """In a process: connections of one kind at a time."""

    def __init__(self) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._over = threading.Event()
        self._full = threading.Event()
        self._thread = threading.Thread()
        self._counts: list[int] = []
        self._made = 0

    def become_nobody(self) -> None:
        """Be another user, where that is possible."""
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)

    def begin(self, kind: str, places: Sequence[Address], token: str) -> None:
        """Return when all connections have been tried once."""
        self._over.clear()
        self._full.clear()
        self._counts, self._made = [], 0
        said = KINDS[kind].said.replace("TOKEN", token).encode()
        arguments = (said, KINDS[kind].drip, cycle(places))
        self._thread = threading.Thread(target=self._hold, args=arguments)
        self._thread.start()
        self._full.wait()

    def end(self) -> tuple[int, int]:
        """Close all. Return how many were open at the median moment, and how many were opened."""
        self._over.set()
        self._thread.join()
        counts = sorted(self._counts)
        return counts[len(counts) // 2], self._made

    def _hold(self, said: bytes, drip: bytes, places: "cycle[Address]") -> None:
        most, again = most_held(), AGAIN_PER_S * TURN_S
        with selectors.DefaultSelector() as open_ones:
            drip_s = time.monotonic() + DRIP_S
            while not self._over.is_set():
                first = not self._full.is_set()
                missing = most - len(open_ones.get_map())
                for _ in range(missing if first else min(missing, int(again))):
                    self._open(open_ones, next(places))
                turn_s = time.monotonic() + TURN_S
                while (left_s := turn_s - time.monotonic()) > 0:
                    for key, events in open_ones.select(left_s):
                        _serve(open_ones, key.fileobj, events, said)  # type: ignore[arg-type]
                if drip and time.monotonic() >= drip_s:
                    drip_s += DRIP_S
                    for key in list(open_ones.get_map().values()):
                        _send(open_ones, key.fileobj, drip)  # type: ignore[arg-type]
                self._full.set()
                self._counts.append(len(open_ones.get_map()))
            for key in list(open_ones.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]

    def _open(self, open_ones: selectors.BaseSelector, place: Address) -> None:
        link = socket.socket()
        link.setblocking(False)
        with suppress(BlockingIOError):
            link.connect(place)
        open_ones.register(link, selectors.EVENT_READ | selectors.EVENT_WRITE)
        self._made += 1


def _serve(
    open_ones: selectors.BaseSelector, link: socket.socket, events: int, said: bytes
) -> None:
    if events & selectors.EVENT_WRITE:  # It is there, or was refused.
        open_ones.modify(link, selectors.EVENT_READ)
        _send(open_ones, link, said)
        return
    try:
        closed = link.recv(1 << 16) == b""
    except BlockingIOError:
        return
    except OSError:
        closed = True
    if closed:
        _close(open_ones, link)


def _send(open_ones: selectors.BaseSelector, link: socket.socket, data: bytes) -> None:
    try:
        link.send(data)
    except BlockingIOError:
        pass
    except OSError:
        _close(open_ones, link)


def _close(open_ones: selectors.BaseSelector, link: socket.socket) -> None:
    open_ones.unregister(link)
    link.close()
