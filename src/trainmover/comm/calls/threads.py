# SPDX-License-Identifier: Apache-2.0
"""Daemon threads that wait so that others need not."""

import threading
from collections.abc import Callable
from queue import SimpleQueue


def in_background(name: str, job: Callable[[], object]) -> threading.Thread:
    """Run `job` in a daemon thread of its own: it may wait for something that never comes."""
    thread = threading.Thread(target=job, name=f"trainmover-{name}", daemon=True)
    thread.start()
    return thread


class WaiterThreads:
    """As many threads as there are jobs that wait at the same time, kept for the next ones.

    Not concurrent.futures: its threads are joined at exit, and ours may wait for a dead peer.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def run(self, job: Callable[[], object]) -> None:
        with self._lock:
            spare = self._idle > 0
            if spare:
                self._idle -= 1
        self._jobs.put(job)
        if not spare:
            in_background("waiter", self._serve)

    def _serve(self) -> None:
        while True:
            self._jobs.get()()
            with self._lock:
                self._idle += 1


waiters = WaiterThreads()
