# SPDX-License-Identifier: Apache-2.0
"""What the memory of a rank really holds: nobody in the world sees it, but by hashing."""

import struct
from typing import NamedTuple

from trainmover.ids import Step

FLAW_STRIDE, FROZEN_OF = 1_000_000_007, 4
"""One flaw in so many is in what is frozen."""
Hashes = tuple[bytes, bytes]


class Bits(NamedTuple):
    """A rank's state.

    after  the step after which it is right
    flaw   number of the bit that has flipped in it; 0: none has
    """

    after: Step
    flaw: int = 0

    def next(self) -> "Bits":
        """After one step more: what is wrong stays wrong, and on this rank alone."""
        return Bits(Step(self.after + 1), self.flaw)

    def hashes(self, owner: int) -> Hashes:
        """Of what it has shared: weights, what the optimizer has of them, and frozen weights; then
        of a buffer, and of a counter of the script's. owner: whose state it is, where no other
        rank's is equal.

        A bit has flipped in the weights and maybe goes on to the next, or in what never changes.

        >>> Bits(3).hashes(0) == Bits(3).hashes(0) != Bits(3, flaw=1).hashes(0)
        True
        """
        still = self.flaw * (self.flaw % FROZEN_OF == 0)
        moving = self.flaw - still
        spreads = moving * (moving % 2)
        flaws = ((self.after, moving), (self.after, spreads), (0, still))
        shared = (
            after + FLAW_STRIDE * flaw + (owner << 48) + (place << 40)
            for place, (after, flaw) in enumerate(flaws)
        )
        return struct.pack("<3Q", *shared), struct.pack("<2Q", self.after, self.after + 1)


NOTHING = Bits(Step(0))


def loss(step: Step) -> float:
    """What the step after `step` reports: it depends on the state, as a loss does. A bit that flips
    does not show in it: only rounds see that.

    >>> loss(1) == loss(1) != loss(2)
    True
    """
    return (step * 2654435761 % 1_000_003) / 1000.0
