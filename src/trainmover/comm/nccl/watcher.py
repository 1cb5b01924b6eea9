# SPDX-License-Identifier: Apache-2.0
"""A thread that looks for errors which NCCL notes in the background.

Whoever waits in our code asks for them, but the script may wait in torch's (`.item()`), and a
kernel that an error has cut off from its peers waits for ever.
"""

import threading
import time
import weakref
from typing import Protocol

from trainmover.comm.calls.threads import in_background

_PERIOD_S = 0.1


class Watched(Protocol):
    """A session whose communicator may have failed."""

    def look(self) -> None:
        """End the session over an error of its communicator."""


class Watcher:
    """One thread for all sessions of the process, from the first one on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: weakref.WeakSet[Watched] = weakref.WeakSet()
        self._runs = False

    def add(self, session: Watched) -> None:
        with self._lock:
            self._sessions.add(session)
            starts, self._runs = not self._runs, True
        if starts:
            in_background("nccl-watcher", self._run)

    def _run(self) -> None:
        while True:
            time.sleep(_PERIOD_S)
            with self._lock:
                sessions = list(self._sessions)
            for session in sessions:
                session.look()
            del sessions[:]


watcher = Watcher()
"""That of this process."""
