# SPDX-License-Identifier: Apache-2.0
"""The server's own beat: whose silence it counts, and what it does from time to time."""

import asyncio
from collections.abc import Callable

from trainmover.protocol.deadlines import BEAT_S
from trainmover.server.machines.lanes import Lane
from trainmover.server.machines.links import HELLO_TICKS_MAX, MachineLink

STALL_S = 0.5


class Pulse:
    """Counts the silence of `links` at every tick, then calls `beat`. The time of who says no hello
    runs out here."""

    def __init__(self, links: set[MachineLink | Lane], *, beat: Callable[[], None]) -> None:
        self._links = links
        self._beat = beat
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.lag_s = 0.0
        """For which the last tick came late."""

    def start(self) -> None:
        """Until `stop`."""
        self._schedule(self._loop.time())

    def stop(self) -> None:
        """No tick follows."""
        if self._timer is not None:
            self._timer.cancel()

    def tick(self, due: float) -> None:
        """One tick. due: the loop's time for it; one that is late was not the machines' silence."""
        self.lag_s = self._loop.time() - due
        stalled = self.lag_s > STALL_S
        self._schedule(self._loop.time())
        for link in list(self._links):
            link.quiet_ticks = 0 if stalled else link.quiet_ticks + 1
            if link.machine is None and link.quiet_ticks > HELLO_TICKS_MAX and not link.trunk:
                link.abort()
        self._beat()

    def _schedule(self, last: float) -> None:
        self._timer = self._loop.call_at(last + BEAT_S, self.tick, last + BEAT_S)
