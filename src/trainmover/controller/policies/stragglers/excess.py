# SPDX-License-Identifier: Apache-2.0
"""When a rank is slow, and not by chance. Pure.

Slow is a step of 10 % more than the role's others take for the same one, as the paper has it, so
what all have in common, as longer sequences, is no slowness. That some steps are slow says nothing:
a collector of garbage runs, a page is fetched. So it is asked how likely as many of the last n
would be if this rank were like the others, and as it was before: those steps say how often one is
slow by chance. One that hovers below the limit is beyond it now and then, and is not slow for that.
No law of the noise is assumed, only that chance does not strike many steps in a row: what does, is
slowness.
"""

import math
from collections.abc import Iterable, Sequence

SLOW = 1.10
"""Of the role's others: what is slow."""
LEAST_US = 2_000
"""Less a step is worth no move of anything."""
LASTS_US = 500_000
"""What is over sooner is nothing that lasts, however many steps it has met."""
WINDOWS = (5, 6, 7, 10, 14, 20, 28, 40, 56, 80, 112, 160)
"""So many of the last steps are looked at, each in turn."""
LIKELY = 0.0095
"""At least so often a healthy rank is believed to be slow, whatever was seen of the others."""
EVEN = 0.5
"""At most so often a rank is believed to be slow by chance because it was before."""
KNOWN = 60
"""Without so many steps beside those in question nobody knows what is usual."""
CHANCE = 1e-10
"""At most so likely it is chance: less than once in a year of ten steps a second, on 30 ranks."""
SUSPICION = 1e-4
"""So unlikely a row of slow steps is a reason to get ready."""


def is_slow(own_us: float, usual_us: float) -> bool:
    """Whether one step is.

    >>> is_slow(121_000, 100_000), is_slow(105_000, 100_000), is_slow(2_000, 1_000)
    (True, False, False)
    """
    return own_us > usual_us * SLOW and own_us - usual_us >= LEAST_US


class Others:
    """For each of two values or more, the median of all but that one.

    >>> others = Others([10, 2, 1, 3])
    >>> [others.median(value) for value in (1, 2, 3, 10)], Others([1, 5]).median(1)
    ([3.0, 3.0, 2.0, 2.0], 5.0)
    """

    def __init__(self, values: Iterable[float]) -> None:
        in_order = sorted(values)
        count = len(in_order) - 1
        lower, upper = (count - 1) // 2, count // 2
        self._lower, self._after_lower = in_order[lower : lower + 2]
        self._upper, self._after_upper = in_order[upper : upper + 2]

    def median(self, value: float) -> float:
        lower = self._after_lower if value < self._after_lower else self._lower
        upper = self._after_upper if value < self._after_upper else self._upper
        return (lower + upper) / 2


def slow_for(newest_first: Sequence[bool], slow_of_all: int, all_seen: int, least: int = 0) -> int:
    """For how many of the last steps a rank is slow; 0: it is not, as far as one can know.

    newest_first  whether each step was
    slow_of_all, all_seen  steps of the whole role, these among them
    least  so many it must be

    >>> slow_for([True] * 8 + [False] * 30, 8, 300), slow_for([True] * 4 + [False] * 30, 4, 300)
    (7, 0)
    >>> slow_for([True] * 25 + [False] * 75, 25, 300, least=12)
    14
    >>> slow_for([True, True, False] * 60, 600, 900)
    0
    """
    slow, of_own = 0, sum(newest_first)
    for count, one in enumerate(newest_first, 1):
        slow += one
        known = all_seen - count
        if known < KNOWN:
            return 0
        if count not in WINDOWS or count < least or 2 * slow <= count:
            continue
        likely = (slow_of_all - slow + 1) / known
        older = len(newest_first) - count
        own = min((of_own - slow) / older, EVEN) if older else 0.0
        if is_no_chance(slow, count, max(likely, own, LIKELY)):
            return count
    return 0


def may_be_slow(newest_first: Sequence[bool], slow_of_all: int, all_seen: int) -> bool:
    """Whether the last steps rouse a suspicion, and those before the newest did not.

    >>> [may_be_slow([True] * slow + [False] * 30, slow, 300) for slow in range(1, 6)]
    [False, True, False, False, False]
    >>> [may_be_slow([True] * slow + [False] * 30, 9 + slow, 300) for slow in range(1, 6)]
    [False, False, True, False, False]
    >>> may_be_slow([False, True], 1, 300)
    False
    """
    row = next((at for at, slow in enumerate(newest_first) if not slow), len(newest_first))
    known = all_seen - row
    if known < KNOWN:
        return False
    likely = max((slow_of_all - row + 1) / known, LIKELY)
    return likely**row < SUSPICION <= likely ** (row - 1)


def is_no_chance(slow: int, count: int, likely: float) -> bool:
    """Whether so many of `count` steps are hardly ever slow, each being so by that chance."""
    return tail(slow, count, min(likely, 0.999)) < CHANCE


def tail(least: int, count: int, likely: float) -> float:
    """How likely at least so many of `count` are.

    >>> round(tail(1, 2, 0.5), 6), tail(7, 7, 0.1) < 1.01e-7
    (0.75, True)
    """
    odds = likely / (1 - likely)
    term = math.comb(count, least) * likely**least * (1 - likely) ** (count - least)
    total = term
    for more in range(least, count):
        term *= odds * (count - more) / (more + 1)
        total += term
    return total
