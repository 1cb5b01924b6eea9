"""The server's own beat: what it does from time to time, and whose silence it counts meanwhile."""

import asyncio
from collections.abc import Callable

from trainmover.protocol.crowd import Crowd
from trainmover.server.links import HELLO_TICKS_MAX, MachineLink

TICK_S = 0.2
STALL_S = 0.5
QUIET_TICKS_MAX = 5


class Pulse:
    """Judges the silence of `links` at every tick, then calls `beat`. A crowd's time runs out here.

    silent  told of a machine that has not been heard for too long, and why it counts as lost
    """

    def __init__(
        self,
        links: set[MachineLink],
        crowd: Crowd[MachineLink],
        *,
        beat: Callable[[], None],
        silent: Callable[[MachineLink, str], None],
    ) -> None:
        self._links = links
        self._crowd = crowd
        self._beat = beat
        self._silent = silent
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Until `stop`."""
        self._schedule(self._loop.time())

    def stop(self) -> None:
        """No tick follows."""
        if self._timer is not None:
            self._timer.cancel()

    def tick(self, due: float) -> None:
        """One tick. due: the loop's time for it; one that is late was not the machines' silence."""
        stalled = self._loop.time() - due > STALL_S
        self._schedule(self._loop.time())
        for stranger in self._crowd.late(self._loop.time()):
            stranger.abort()
        for link in list(self._links):
            link.quiet_ticks = 0 if stalled else link.quiet_ticks + 1
            self._judge(link)
        self._beat()

    def _schedule(self, last: float) -> None:
        self._timer = self._loop.call_at(last + TICK_S, self.tick, last + TICK_S)

    def _judge(self, link: MachineLink) -> None:
        if link.machine is None:
            if link.quiet_ticks > HELLO_TICKS_MAX:
                link.abort()
        elif link.quiet_ticks >= QUIET_TICKS_MAX:
            self._silent(link, f"no heartbeat for {QUIET_TICKS_MAX * TICK_S:.0f} s")
