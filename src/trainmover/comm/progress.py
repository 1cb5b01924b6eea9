# SPDX-License-Identifier: Apache-2.0
"""Stall detection of a device: by what it no longer completes, not by how much it was given.

The host runs ahead of the device. A queue of many seconds is healthy while calls in it complete;
a device that completes none for `Pace.patience_s` is hung.
"""

import time
from collections import deque
from collections.abc import Callable

QUIET_S = 10.0
"""Least time without a completed call before a device counts as hung."""

_STEPS_KEPT = 100


class Pace:
    """Durations of the latest steps of this process. A step may be one kernel after the other
    without a collective, so the longest one says how long silence is normal."""

    def __init__(self) -> None:
        self._steps: deque[float] = deque(maxlen=_STEPS_KEPT)
        self._started: float | None = None

    def start_step(self) -> None:
        self._started = time.monotonic()

    def finish_step(self) -> None:
        """All that the step has given the device is complete."""
        if self._started is not None:
            self._steps.append(time.monotonic() - self._started)
            self._started = None

    def discard_step(self) -> None:
        """The step under way is broken off: its duration says nothing."""
        self._started = None

    @property
    def patience_s(self) -> float:
        """Longest time without a completed call that a healthy device may need."""
        return max(QUIET_S, 2 * max(self._steps, default=0.0))


pace = Pace()
"""That of this process."""


class Stall:
    """Watch over a device that is waited for.

    completed  counts calls that the device has completed; each one starts the time again
    """

    def __init__(self, completed: Callable[[], int]) -> None:
        self._completed = completed
        self._seen = completed()
        self._since = time.monotonic()

    def is_over(self) -> bool:
        """Whether nothing was completed for longer than a healthy device needs."""
        now, seen = time.monotonic(), self._completed()
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since >= pace.patience_s
