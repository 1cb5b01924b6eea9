# SPDX-License-Identifier: Apache-2.0
"""What is counted as it happens, for who asks for metrics: with arithmetic only, beside the path of
decisions. Pure."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from trainmover.controller.state import Job

STEP_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
PAUSE_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """Counts by upper bound, in seconds.

    >>> seen = Histogram((1.0, 5.0))
    >>> for value in (0.5, 5.0, 7.0):
    ...     seen.add(value)
    >>> seen.cumulative, seen.sum_s
    ([('1.0', 1), ('5.0', 2), ('+Inf', 3)], 12.5)
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def add(self, value_s: float) -> None:
        self._counts[bisect_left(self._bounds, value_s)] += 1
        self.sum_s += value_s

    @property
    def cumulative(self) -> list[tuple[str, int]]:
        names = [*map(str, self._bounds), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True))


class Measures:
    """Of the job as this controller has seen it.

    steps     how long rank 0's took: all ranks commit together. Those that an incident has cut
              short or held up are not among them
    since_us  of its first commit; None: there was none
    cut_us    when the newest snapshots of all ranks were complete; None: not seen
    checkpoint_us  when the newest checkpoint was published; None: not seen
    """

    def __init__(self) -> None:
        self.steps = Histogram(STEP_S)
        self.since_us: int | None = None
        self.cut_us: int | None = None
        self.checkpoint_us: int | None = None

    def committed(self, gaps_us: Iterable[int], now: Callable[[], int]) -> None:
        """Ranks have told of steps. gaps_us: rank 0's, as `Progress.take` has found them."""
        if self.since_us is None:
            self.since_us = now()
        for gap_us in gaps_us:
            self.steps.add(max(0, gap_us) / 1e6)

    def decided(self, before: Job, after: Job, at_us: int) -> None:
        """An event was taken."""
        if after.cut is not before.cut and after.cut is not None:
            self.cut_us = at_us
        if after.checkpoint is not before.checkpoint and after.checkpoint is not None:
            self.checkpoint_us = at_us
