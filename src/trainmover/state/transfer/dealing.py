# SPDX-License-Identifier: Apache-2.0
"""Which chunk is asked of whom: by demand, so that who is slow is asked for less. Pure."""

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

AHEAD_S = 0.02
"""How much a stream may be asked for at once, in time at its own speed."""
AHEAD_MAX = 8


@dataclass
class Dealing:
    """Chunks by number. A stream is known by whatever is hashable.

    open    not asked of anybody, the next one first
    asked   of each stream, in the order in which it will answer
    left    not here yet
    """

    open: deque[int]
    left: int
    asked: dict[Hashable, deque[int]] = field(default_factory=dict)

    @staticmethod
    def of(numbers: Sequence[int]) -> "Dealing":
        return Dealing(deque(numbers), len(numbers))

    def ask(self, stream: Hashable, ahead: int) -> list[int]:
        """What to ask `stream` for now, so that it has `ahead` chunks to send.

        Nothing while it still has half of that: to ask for several costs no more than for one.
        """
        asked = self.asked.setdefault(stream, deque())
        if len(asked) > ahead // 2:
            return []
        more = [self.open.popleft() for _ in range(min(ahead - len(asked), len(self.open)))]
        asked.extend(more)
        return more

    def next(self, stream: Hashable) -> int | None:
        """The chunk that `stream` sends next; None if it was asked for none."""
        asked = self.asked.get(stream)
        return asked[0] if asked else None

    def arrived(self, stream: Hashable) -> None:
        """What `next` gave is here."""
        self.asked[stream].popleft()
        self.left -= 1

    def drop(self, stream: Hashable) -> None:
        """It sends no more: others are asked for what it was, the oldest first."""
        self.open.extendleft(reversed(self.asked.pop(stream, deque())))


def ahead(bytes_s: float, chunk_bytes: int) -> int:
    """Chunks to ask a stream of that speed for: two at first, one of a slow stream, so that nobody
    waits long for its last.

    >>> ahead(0.0, 2**20), ahead(2e8, 2**20), ahead(4e9, 2**20)
    (1, 4, 8)
    """
    return min(AHEAD_MAX, 1 + int(bytes_s * AHEAD_S / chunk_bytes))
