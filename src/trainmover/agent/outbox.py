# SPDX-License-Identifier: Apache-2.0
"""Facts that an agent keeps until they are safe with the controller. Pure."""

from collections import deque

FACTS_MAX = 200_000
BYTES_MAX = 64 * 1024 * 1024


class Outbox:
    """Encoded facts by their numbers: counted from 1, in the order in which they were said.

    >>> outbox = Outbox()
    >>> for fact in (b"a", b"b", b"c"):
    ...     outbox.keep(fact)
    >>> outbox.drop(1)
    >>> outbox.dropped, list(outbox.kept)
    (1, [b'b', b'c'])
    """

    def __init__(self, *, facts_max: int = FACTS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.kept: deque[bytes] = deque()
        self.dropped = 0
        self._bytes = 0
        self._facts_max = facts_max
        self._bytes_max = bytes_max

    def keep(self, fact: bytes) -> None:
        """Give it the next number."""
        self.kept.append(fact)
        self._bytes += len(fact)

    def drop(self, number: int) -> None:
        """Facts up to this number are safe. One that was never given is taken for the last."""
        while self.kept and self.dropped < number:
            self._bytes -= len(self.kept.popleft())
            self.dropped += 1

    @property
    def too_full(self) -> bool:
        """Whether nobody should wait any longer for them to be taken."""
        return len(self.kept) > self._facts_max or self._bytes > self._bytes_max
