"""What a rank itself takes for its steps: all but its waits for other ranks.

    gate k-1  |  update, fetch, forward, backward ...  |  gate k
              '--- less what the communicator has waited for others ---'

All ranks pass a gate together, so from outside each is as slow as the slowest. Nothing is called
between collectives: the communicator counts its waits where it waits anyway, and clocks are read
twice a step. How long the main thread ran on a processor tells a step that has become longer from
one that was kept from running.
"""

import time
from collections.abc import Callable

from trainmover.ids import Step
from trainmover.protocol.messages import Took


class OwnTime:
    """Of one rank's main thread. waited_ns: as in `Groups`."""

    def __init__(self, waited_ns: Callable[[], int] | None) -> None:
        self._waited_ns = waited_ns
        self._since: tuple[int, int] | None = None
        self._took: tuple[int, int] | None = None

    def at_gate(self) -> None:
        """The rank has computed its step."""
        if self._since is not None:
            own_ns, cpu_ns = self._clocks()
            self._took = own_ns - self._since[0], cpu_ns - self._since[1]

    def passed(self) -> None:
        """The next step begins."""
        if self._waited_ns is not None:
            self._since = self._clocks()

    def took(self, step: Step) -> Took | None:
        """For the step that has just passed; None if it is not known."""
        took, self._took = self._took, None
        if took is None:
            return None
        own_us, cpu_us = took[0] // 1000, took[1] // 1000
        return Took(step=step, own_us=max(own_us, 0), cpu_us=max(cpu_us, 0))

    def _clocks(self) -> tuple[int, int]:
        """Own time and that on a processor, both from some moment on."""
        assert self._waited_ns is not None
        return time.monotonic_ns() - self._waited_ns(), time.thread_time_ns()
