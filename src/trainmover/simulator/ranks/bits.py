"""What the memory of a rank really holds: nobody in the world sees it, but by hashing."""

import struct
from typing import NamedTuple

from trainmover.ids import Step

FLAW_STRIDE = 1_000_000_007


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

    def hash(self, owner: int) -> bytes:
        """Of its one tensor. owner: whose state it is, where no other rank's is equal.

        >>> Bits(3).hash(0) == Bits(3).hash(0) != Bits(3, flaw=1).hash(0)
        True
        """
        return struct.pack("<Q", self.after + FLAW_STRIDE * self.flaw + (owner << 48))


NOTHING = Bits(Step(0))


def loss(step: Step) -> float:
    """What the step after `step` reports: it depends on the state, as a loss does. A bit that flips
    does not show in it: only rounds see that.

    >>> loss(1) == loss(1) != loss(2)
    True
    """
    return (step * 2654435761 % 1_000_003) / 1000.0
