# SPDX-License-Identifier: Apache-2.0
"""How many rounds loops had: those that begin one after the other, outermost or in one round of the
loop around them.

Whoever takes a rank comes by loops that the rank had left. What lies behind such a loop counts on
what its rounds have left (a list of results, a divisor, a local variable), so there it has as many.
"""

from collections import deque

KEPT = 16
"""Of so many, the newest, it is known: it goes with every record. A script that makes its data
passes by a `for` of its own begins a loop in each."""
UNKNOWN = -1


class Rounds:
    """begun: how many loops have begun."""

    def __init__(self) -> None:
        self.begun = 0
        self._newest: deque[int] = deque(maxlen=KEPT)

    def begin(self) -> int:
        """One more loop. Gives its ordinal."""
        self._newest.append(0)
        self.begun += 1
        return self.begun - 1

    def had_one(self, ordinal: int) -> None:
        """This loop has got a batch."""
        place = ordinal - self.begun
        if -place <= len(self._newest):
            self._newest[place] += 1

    def before(self, ordinal: int) -> list[int]:
        """Of the loops before this one, as far back as it is known."""
        after = self.begun - ordinal
        return list(self._newest)[: max(0, len(self._newest) - after)]

    def resume(self, ordinal: int, before: list[int], had: int) -> None:
        """As another process has counted: of the loops `before` this one, and of itself."""
        later = self.begun - ordinal - 1
        behind = list(self._newest)[-later:] if later else []
        self._newest = deque([*before, had, *behind], maxlen=KEPT)


def of(ordinal: int, before: list[int], later: int) -> int:
    """How many a loop had, from those `before` loop `later`; UNKNOWN if that is too long ago."""
    place = ordinal - later
    return before[place] if -len(before) <= place < 0 else UNKNOWN
