"""Who stands at a door and has proved nothing yet: so many, for so long, and no longer. Pure."""

from collections.abc import Hashable
from typing import Generic, TypeVar

STRANGERS_MAX = 256
PATIENCE_S = 5.0
AT_ONCE = 60
"""Connections that a loop accepts before it hears again what others say. A member comes in at its
third word, in TLS: so it is not pushed out before, though somebody knocks without end."""
QUEUE = 1024
"""Connections that the kernel keeps until then: behind them it lets others wait for a second."""

Peer = TypeVar("Peer", bound=Hashable)


class Crowd(Generic[Peer]):
    """Connections without a proof, the oldest first.

    Processes of the job prove themselves within milliseconds. So whoever comes is let in here, and
    who has stood longest goes for it: strangers keep nobody out, hold no more than `most`
    descriptors, and none of them for longer than `patience_s`, whatever they say meanwhile.

    >>> crowd = Crowd(most=2, patience_s=5.0)
    >>> [crowd.come(name, now_s=at) for at, name in enumerate("abc")]
    [None, None, 'a']
    >>> crowd.go("c")
    >>> crowd.late(now_s=6.5)
    ['b']
    """

    def __init__(self, most: int = STRANGERS_MAX, patience_s: float = PATIENCE_S) -> None:
        self._most = most
        self._patience_s = patience_s
        self._came_s: dict[Peer, float] = {}

    def __len__(self) -> int:
        return len(self._came_s)

    def come(self, peer: Peer, now_s: float) -> Peer | None:
        """A new connection; who has to go for it."""
        oldest = next(iter(self._came_s)) if len(self._came_s) >= self._most else None
        if oldest is not None:
            del self._came_s[oldest]
        self._came_s[peer] = now_s
        return oldest

    def go(self, peer: Peer) -> None:
        """It has proved itself, or is gone."""
        self._came_s.pop(peer, None)

    def late(self, now_s: float) -> list[Peer]:
        """Those whose time is over; they are forgotten here."""
        late = [peer for peer, came_s in self._came_s.items() if now_s - came_s > self._patience_s]
        for peer in late:
            del self._came_s[peer]
        return late
