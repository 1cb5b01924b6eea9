"""The controller's time: what decisions are made by, and what people are shown.

The host's clock may be set while a job runs, by hours. It is read once, as a controller begins;
from then on what has passed is counted by a clock that nobody sets. A successor goes on from where
the journal ends, if the host's clock says less by then.
"""

import time
from collections.abc import Callable


def _wall_us() -> int:
    return time.time_ns() // 1000


def _passed_us() -> int:
    return time.monotonic_ns() // 1000


class Clock:
    """Microseconds since 1970, as the host's clock had it when this began.

    >>> passed = iter([0, 5, 7])
    >>> clock = Clock(least_us=0, wall_us=lambda: 100, passed_us=lambda: next(passed))
    >>> clock.now(), clock.now()
    (105, 107)
    >>> passed = iter([0, 5])
    >>> Clock(least_us=200, wall_us=lambda: 100, passed_us=lambda: next(passed)).now()
    205
    """

    def __init__(
        self,
        *,
        least_us: int,
        wall_us: Callable[[], int] = _wall_us,
        passed_us: Callable[[], int] = _passed_us,
    ) -> None:
        self._passed_us = passed_us
        self._offset_us = max(least_us, wall_us()) - passed_us()

    def now(self) -> int:
        """Never less than before."""
        return self._offset_us + self._passed_us()
