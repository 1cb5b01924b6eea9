# SPDX-License-Identifier: Apache-2.0
"""Job time as people read it: by the host's clock. Pure."""

from bisect import bisect_right
from collections.abc import Iterable

from trainmover.controller.events import ControllerReturned


class WallTimes:
    """Lead of the host's clock over job time, from one controller to the next.

    >>> times = WallTimes([ControllerReturned(at_us=50, wall_us=80)])
    >>> times.shown(40), times.shown(50), times.shown(60)
    (40, 80, 90)
    """

    def __init__(self, returned: Iterable[ControllerReturned]) -> None:
        told = (one for one in returned if one.wall_us)
        known = [(one.at_us, max(0, one.wall_us - one.at_us)) for one in told]
        self._since = [at_us for at_us, _ in known]
        self._ahead = [0, *(ahead for _, ahead in known)]

    def shown(self, at_us: int) -> int:
        """Return the host's time at that job time."""
        return at_us + self._ahead[bisect_right(self._since, at_us)]
