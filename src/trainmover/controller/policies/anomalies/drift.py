# SPDX-License-Identifier: Apache-2.0
"""Own times that creep away from those of others, below what counts as slow. Pure.

A block's figure is the median of a rank's own time over that of its role in the same steps. It is
compared with what it was on this machine: ranks differ for good. What exceeds that is summed up
(CUSUM, Page 1954), so little is found if it lasts. No block counts for more than a few deviations,
so that no spike is a drift, and what is too little to matter is none, however certain.
"""

import statistics
from collections import deque

BLOCK = 16
"""Steps."""
FIRST = 40
"""Blocks that say what is usual."""
CLIP, SLACK, TOO_MUCH = 3.0, 1.0, 30.0
"""Deviations: most that a block adds, what each takes off, from which sum on it is a drift."""
LEAST_SPREAD = 0.005
MATTERS = 0.05
"""Of a usual step."""
LAST = 12
"""Blocks that have to show it."""
MAD_TO_SIGMA = 1.4826


class Drift:
    """Of one rank on one machine."""

    def __init__(self) -> None:
        self._block: list[float] = []
        self._first: list[float] = []
        self._last: deque[float] = deque(maxlen=LAST)
        self._usual = self._spread = self._sum = 0.0

    def add(self, own: float, usual: float) -> float | None:
        """One step. What it has crept away by, once, as a part of a usual step; else None."""
        self._block.append(own / max(usual, 1.0))
        if len(self._block) < BLOCK:
            return None
        figure = statistics.median(self._block)
        self._block.clear()
        if len(self._first) < FIRST:
            self._begin(figure)
            return None
        return self._look(figure)

    def _begin(self, figure: float) -> None:
        self._first.append(figure)
        self._usual = statistics.median(self._first)
        off = statistics.median(abs(one - self._usual) for one in self._first)
        self._spread = max(MAD_TO_SIGMA * off, LEAST_SPREAD)

    def _look(self, figure: float) -> float | None:
        self._last.append(figure)
        off = min(max((figure - self._usual) / self._spread, -CLIP), CLIP)
        self._sum = max(self._sum + off - SLACK, 0.0)
        by = statistics.median(self._last) - self._usual
        if self._sum < TOO_MUCH or by < MATTERS:
            return None
        self._first, self._sum = [], 0.0
        return by
