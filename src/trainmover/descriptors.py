# SPDX-License-Identifier: Apache-2.0
"""File descriptors of this process: the limit, and the share that each kind of peer gets.

A process that has used up its limit can accept nobody, open no file and start nothing. So peers
never share one pot: each kind has a part of the limit, and what is left is the job's own.
"""

import errno
import resource
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

LIMIT_MAX = 1 << 20
"""More is not asked for: some programs that a script may start walk over all that are possible."""
STRANGERS_MAX = 256
NATIVE_STRANGERS_MAX = 512
PROVED_MAX = 1024
STREAMS_MAX = 256
"""Each takes a write a second of the controller, which shares its cores with the job: 500 took 0.15
of one, and a tenth of a step on two busy cores."""
CLIENTS_MAX = 256
TELL_S = 60.0
_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def raise_limit() -> None:
    """Raise this process's soft limit to its hard one, for it and for all that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, LIMIT_MAX)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):  # A sandbox may forbid it: shares are smaller then.
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def limit() -> int:
    """Return how many descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LIMIT_MAX if soft == resource.RLIM_INFINITY else min(soft, LIMIT_MAX)


@dataclass(frozen=True)
class Shares:
    """Upper bounds for one process, by kind of peer.

    strangers         connections without proof at one listener
    at_once           connections that one turn of a loop accepts
    native_strangers  the same at the native communicator's endpoint, both of its listeners together
    proved            HTTP connections of one role
    streams           event streams of one role, which are among its connections
    clients           of a state server, which have proved the token
    """

    strangers: int
    at_once: int
    native_strangers: int
    proved: int
    streams: int
    clients: int


def shares(files: int | None = None) -> Shares:
    """Divide `files` descriptors; by default this process's limit.

    A loop accepts so few at once that a peer which answers is heard before newcomers push it out:
    it comes in at its third word.

    >>> shares(1024)
    Shares(strangers=64, at_once=15, native_strangers=128, proved=128, streams=64, clients=128)
    """
    files = limit() if files is None else files
    strangers = _between(8, files // 16, STRANGERS_MAX)
    proved = _between(16, files // 8, PROVED_MAX)
    return Shares(
        strangers=strangers,
        at_once=strangers * 15 // 64,
        native_strangers=_between(16, files // 8, NATIVE_STRANGERS_MAX),
        proved=proved,
        streams=min(proved // 2, STREAMS_MAX),
        clients=_between(16, files // 8, CLIENTS_MAX),
    )


def _between(least: int, wanted: int, most: int) -> int:
    return max(least, min(wanted, most))


def is_shortage(error: object) -> bool:
    """Whether an error says that there is no descriptor, or no memory for a socket, just now."""
    return isinstance(error, OSError) and error.errno in _SHORTAGES


class Shortage:
    """Accepts that failed for want of descriptors: they are tried again, and told once a minute.

    process  in words, as it is told: "the controller"
    tell     by default it is printed
    """

    def __init__(self, process: str, tell: Callable[[str], None] | None = None) -> None:
        self._process = process
        self._tell = tell or _print
        self._tell_again_s = 0.0

    def explains(self, context: Mapping[str, Any]) -> bool:
        """Whether an asyncio loop's exception handler was called for such an accept. The loop has
        taken the listener aside, and tries again in a second."""
        error = context.get("exception")
        if "socket" not in context or not is_shortage(error):
            return False
        self.note(error)
        return True

    def note(self, error: object) -> None:
        """Tell of one, unless that was done within the last minute."""
        now_s = time.monotonic()
        if now_s < self._tell_again_s:
            return
        self._tell_again_s = now_s + TELL_S
        why = getattr(error, "strerror", None) or error
        self._tell(
            f"{self._process} cannot accept a connection: {why}, of {limit()} file descriptors. "
            "Who is connected stays so and training goes on; newcomers wait until one is free. If "
            "this goes on, raise the limit before the next run: ulimit -n"
        )


def _print(text: str) -> None:
    """Writes the line and its end at once: print would let another thread come between."""
    sys.stderr.write(f"trainmover: {text}\n")
    sys.stderr.flush()
