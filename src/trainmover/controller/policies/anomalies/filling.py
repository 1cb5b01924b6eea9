# SPDX-License-Identifier: Apache-2.0
"""Memory that falls to nothing. Pure.

What was told is cut into thirds. Of one that fills, the most and the least that is free fall from
each third to the next; of one that only goes up and down, as caches and collectors of garbage have
it, not both do. The slower of the two says when none is left.
"""

from collections.abc import Sequence

LEAST_ROUNDS = 72
LOW = 0.2
"""Of all memory: what is above is no matter."""
FALLS = 0.015
"""Of all memory, from the first third to the last: what is less is how memory wanders."""
SOON_S = 480.0


def full_in_s(free: Sequence[float], whole: float, round_s: float) -> float | None:
    """Seconds until none is left; None: it does not fall, or not so far. free: a round each.

    >>> falling = [55 - 0.5 * n for n in range(90)]
    >>> full_in_s(falling, 100, 10), full_in_s([20.0] * 90, 100, 10)
    (210.0, None)
    """
    if len(free) < LEAST_ROUNDS or not 0 <= free[-1] < LOW * whole:
        return None
    third = len(free) // 3
    parts = (free[:third], free[third : 2 * third], free[-third:])
    most = _fall([max(part) for part in parts])
    least = _fall([min(part) for part in parts])
    falls = min(most, least)
    if falls < FALLS * whole:
        return None
    left_s = free[-1] / falls * (len(free) - third) * round_s
    return round(left_s, 1) if left_s < SOON_S else None


def _fall(values: Sequence[float]) -> float:
    """From the first to the last; 0 where the middle one is not between them."""
    first, middle, last = values
    return first - last if first > middle > last else 0.0
