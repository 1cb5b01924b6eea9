# SPDX-License-Identifier: Apache-2.0
"""The controller's time: what decisions are made by, and what people are shown.

The host's clock may be set while a job runs, by hours. The first controller reads it once; from
then on a clock that nobody sets counts what has passed. A successor goes on from the journal's
newest time, whatever the host's clock says: while no controller decides, job time stands still, so
an outage of the controller uses up no deadline. `ControllerReturned` records how far the host's
clock is ahead, for people (`Job.wall_ahead_us`). A controller that is stopped and goes on decides
nothing meanwhile either: it looks at its clock five times a second, and of a longer gap no more
counts than `STOOD_US`. It may read what machines said before, in any order with its own beat: so
`stood` is told of the gap by whatever asks for the time first.
"""

import time
from collections.abc import Callable


def _wall_us() -> int:
    return time.time_ns() // 1000


def _passed_us() -> int:
    return time.monotonic_ns() // 1000


STOOD_US = 500_000


class Clock:
    """Job time, microseconds since 1970.

    newest_us  newest time in the journal; 0: there is no journal yet
    stood      is called with the time after a gap, before anybody decides by that time

    >>> passed = iter([0, 5, 7])
    >>> clock = Clock(newest_us=0, wall_us=lambda: 100, passed_us=lambda: next(passed))
    >>> clock.now(), clock.now()
    (105, 107)
    >>> passed = iter([0, 5, 30_000_000])
    >>> clock = Clock(newest_us=20, wall_us=lambda: 100, passed_us=lambda: next(passed))
    >>> clock.now(), clock.now()
    (25, 500025)
    """

    def __init__(
        self,
        *,
        newest_us: int,
        wall_us: Callable[[], int] = _wall_us,
        passed_us: Callable[[], int] = _passed_us,
    ) -> None:
        self._passed_us = passed_us
        self._wall_us = wall_us
        self.stood: Callable[[int], None] = lambda _: None
        self._now_us = newest_us or wall_us()
        self._looked_us = passed_us()

    def now(self) -> int:
        """Never less than before."""
        passed_us = self._passed_us()
        gap_us = passed_us - self._looked_us
        self._now_us += min(gap_us, STOOD_US)
        self._looked_us = passed_us
        if gap_us > STOOD_US:
            self.stood(self._now_us)
        return self._now_us

    def wall(self) -> int:
        """Return the host's own time, which somebody may set."""
        return self._wall_us()
