# SPDX-License-Identifier: Apache-2.0
"""Agents that speak late, beside all others. Pure.

Every round it is asked for how long nothing was heard of each machine (its longest gap). A gap is
late if it is far beyond those of all machines in the same round (robust z-score: median, and median
absolute deviation, which a few late ones do not move), so a controller that was busy itself accuses
nobody. One late round says nothing; so many of the last ones as chance does not make do.
"""

import statistics
from collections.abc import Collection

LEAST_MACHINES = 4
"""Of fewer nobody can say which is the odd one."""
DEVIATIONS = 8.0
MAD_TO_SIGMA = 1.4826
LEAST_S = 1.0
"""A gap that is shorter is none: five heartbeats."""


def limit_s(gaps_s: Collection[float]) -> float | None:
    """From which gap on a machine was late in this round; None: there are too few to say.

    >>> limit_s([0.2, 0.2, 0.3, 9.0]), limit_s([0.2, 9.0])
    (1.0, None)
    >>> round(limit_s([3.0, 3.2, 3.1, 2.9, 3.0]), 1)  # The controller did not hear anybody.
    4.2
    """
    if len(gaps_s) < LEAST_MACHINES:
        return None
    usual = statistics.median(gaps_s)
    spread = MAD_TO_SIGMA * statistics.median(abs(gap - usual) for gap in gaps_s)
    return max(usual + DEVIATIONS * spread, LEAST_S)
