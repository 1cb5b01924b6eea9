# SPDX-License-Identifier: Apache-2.0
"""Sessions of one group in epochs that are to come: connected in the background, then taken at the
switchover, or given up."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from trainmover.comm.communicator import View
from trainmover.comm.failures import Drained
from trainmover.comm.meet.meeting import Meeting
from trainmover.errors import UserError

Session = TypeVar("Session")


class Upcoming(Generic[Session]):
    """Any thread may ask. Holds nothing of who asks: a group ends with the last reference to it.

    free  gives back a session that nobody has a use for
    """

    def __init__(self, free: Callable[[Session], None]) -> None:
        self.closed = False
        self._free = free
        self._lock = threading.Lock()
        self._meetings: dict[int, Meeting] = {}
        self._ready: dict[int, tuple[Session, int]] = {}
        self._discarded: set[int] = set()

    def prepare(self, view: View, connect: Callable[[Meeting], Session]) -> None:
        """Connect, from a meeting of the view's seats. Raises Drained if it is given up meanwhile,
        and whatever `connect` raises."""
        started = time.perf_counter_ns()
        meeting = Meeting(view)
        with self._lock:
            if view.epoch in self._ready:
                return
            if view.epoch in self._discarded or self.closed:
                raise Drained(f"epoch {view.epoch} was given up")
            if view.epoch in self._meetings:
                raise UserError(f"epoch {view.epoch} of group {view.group} is being prepared")
            self._meetings[view.epoch] = meeting
        made: list[Session] = []
        try:
            made.append(connect(meeting))
        finally:
            with self._lock:
                wanted = self._meetings.pop(view.epoch, None) is meeting
                if made and wanted:
                    self._ready[view.epoch] = made[0], time.perf_counter_ns() - started
        if not wanted:
            self._free(made[0])
            raise Drained(f"epoch {view.epoch} was given up")

    def take(self, epoch: int) -> tuple[Session, int]:
        """The one of this epoch, and nanoseconds that it took to connect."""
        with self._lock:
            return self._ready.pop(epoch)

    def discard(self, epoch: int) -> bool:
        """Give it up. Whether it is being connected at this moment."""
        with self._lock:
            self._discarded.add(epoch)
            meeting = self._meetings.pop(epoch, None)
            ready = self._ready.pop(epoch, None)
        if meeting is not None:
            meeting.give_up()
        if ready is not None:
            self._free(ready[0])
        return meeting is not None

    def close(self) -> list[int]:
        """There will be no more. Epochs that are left, to be given up."""
        with self._lock:
            self.closed = True
            return [*self._meetings, *self._ready]
