# SPDX-License-Identifier: Apache-2.0
"""Connections that have proved nothing yet: so many, for so long, and no longer. Pure."""

from collections.abc import Hashable
from typing import Generic, TypeVar

PATIENCE_S = 5.0
QUEUE = 1024
"""Connections that the kernel keeps until they are accepted: it lets further ones wait for a
second."""

Peer = TypeVar("Peer", bound=Hashable)


class Unauthenticated(Generic[Peer]):
    """Connections without a proof: those that have said something, and those that have not.

    Processes of the job prove themselves within milliseconds. So whoever comes is let in here, and
    who has stood longest goes for it: strangers keep nobody out, hold no more than `most`
    descriptors, and none of them for longer than `patience_s`, whatever they say meanwhile. It is
    one of the larger part that goes: who is in the middle of a handshake is not pushed out by any
    number that only knock.

    >>> unknown = Unauthenticated(most=2, patience_s=5.0)
    >>> [unknown.come(name, now_s=at) for at, name in enumerate("abc")]
    [None, None, 'a']
    >>> unknown.heard("b")
    >>> unknown.come("d", now_s=3)
    'c'
    >>> unknown.go("d")
    >>> unknown.late(now_s=6.5)
    ['b']
    """

    def __init__(self, most: int, patience_s: float = PATIENCE_S) -> None:
        self._most = most
        self._patience_s = patience_s
        self._silent: dict[Peer, float] = {}  # To when it came; the oldest first.
        self._heard: dict[Peer, float] = {}

    def __len__(self) -> int:
        return len(self._silent) + len(self._heard)

    def come(self, peer: Peer, now_s: float) -> Peer | None:
        """A new connection; who has to go for it."""
        oldest = None
        if len(self) >= self._most:
            larger = max(self._silent, self._heard, key=len)
            oldest = next(iter(larger))
            del larger[oldest]
        self._silent[peer] = now_s
        return oldest

    def heard(self, peer: Peer) -> None:
        """It has said something, that proves nothing yet."""
        if (came_s := self._silent.pop(peer, None)) is not None:
            self._heard[peer] = came_s

    def go(self, peer: Peer) -> None:
        """It has proved itself, or is gone."""
        self._silent.pop(peer, None)
        self._heard.pop(peer, None)

    def late(self, now_s: float) -> list[Peer]:
        """Those whose time is over; they are forgotten here."""
        everybody = {**self._silent, **self._heard}
        late = [peer for peer, came_s in everybody.items() if now_s - came_s > self._patience_s]
        for peer in late:
            self.go(peer)
        return late
