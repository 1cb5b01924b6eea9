# SPDX-License-Identifier: Apache-2.0
"""Tells of finished calls: one thread per endpoint, started when somebody asks for the first time.

Waiting for one call needs no thread: whoever waits sits inside the extension. A thread is needed
where nobody waits in Python: for futures, which frameworks wait for in C++, for copies that follow
a call, and to keep tensors alive that nobody else holds any more.
"""

import os
import threading
from collections import deque
from collections.abc import Callable

from trainmover import _native
from trainmover.comm.calls.threads import in_background

_AWHILE_S = 3600.0


class Completer:
    """Runs a job once its ticket is done.

    A job may run callbacks of the script, and such a callback may wait for another future. Then its
    thread is stuck in it; so a ticket that is given in from a job brings a new thread, which takes
    over, and the old one ends with its job.
    """

    def __init__(self, endpoint: _native.Endpoint) -> None:
        self._endpoint = endpoint
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._jobs: dict[int, list[Callable[[], object]]] = {}  # By a ticket's number.
        self._ready: deque[Callable[[], object]] = deque()
        self._serving: threading.Thread | None = None

    def when_done(self, ticket: _native.Ticket, job: Callable[[], object]) -> None:
        """Run `job` in a thread of ours once `ticket` is done, however it ended.

        It must not raise. It is dropped afterwards, and with it what it holds. Not in a forked
        child: nothing of its parent's calls is ever done there.
        """
        if os.getpid() != self._process:
            return
        with self._lock:
            self._jobs.setdefault(ticket.subscribe(), []).append(job)
            if self._serving in (None, threading.current_thread()):
                self._serving = None
                self._serving = in_background("completer", self._serve)

    @property
    def busy(self) -> bool:
        """Whether some call that was given in has not ended."""
        return bool(self._jobs)

    def join(self) -> None:
        """The endpoint is closed, so nothing runs any more: let the thread see it."""
        serving = self._serving
        if serving is not None and serving is not threading.current_thread():
            serving.join(timeout=1.0)

    def _serve(self) -> None:
        with self._lock:  # Whoever starts us holds it until our name is in the book.
            me = threading.current_thread()
        while self._work_off(me):
            try:
                numbers = self._endpoint.completed(_AWHILE_S)
            except RuntimeError:  # Closed: all calls are over.
                self._take(list(self._jobs))
                self._work_off(me)
                return
            self._take(numbers)

    def _take(self, numbers: list[int]) -> None:
        """A number that comes once more than it was asked for has no jobs left."""
        with self._lock:
            for number in numbers:
                self._ready.extend(self._jobs.pop(number, ()))

    def _work_off(self, me: threading.Thread) -> bool:
        """Run what is ready; False when another thread has taken over."""
        while self._serving is me:
            try:
                job = self._ready.popleft()
            except IndexError:
                return True
            job()
            del job  # Else its tensors would live until the next one.
        return False
