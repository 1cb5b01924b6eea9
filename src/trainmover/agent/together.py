"""Steps that the workers of a machine tell: one fact for all of them. Pure.

All ranks pass a gate together, so their workers tell at the same moment. Said one by one each would
be a frame of its own, sealed, sent and taken in; at eight ranks a machine that is most of what a
controller does. What others wait for is never held: the first commit of an epoch goes at once, and
whatever else is said goes behind the steps that came before it.
"""

from trainmover.protocol.messages import Committed, CommittedHere

WAIT_S = 0.02
"""For the others; a small part of the time for which workers keep what they have told."""


class Together:
    """nproc: workers of this machine.

    >>> here = Together(nproc=2)
    >>> one, other = (Committed(rank=rank, epoch=3, rows=[]) for rank in (6, 7))
    >>> here.take(one), here.take(other), len(here.given().told), here.given()
    (False, True, 2, None)
    """

    def __init__(self, nproc: int) -> None:
        self._nproc = nproc
        self._told: list[Committed] = []

    @property
    def waits(self) -> bool:
        """Whether something is to be said."""
        return bool(self._told)

    @staticmethod
    def may_wait(fact: Committed) -> bool:
        """Nothing follows from it."""
        return not fact.first

    def take(self, fact: Committed) -> bool:
        """Whether all have told by now, so that there is nobody to wait for."""
        self._told.append(fact)
        return len({one.rank for one in self._told}) >= self._nproc

    def given(self) -> CommittedHere | None:
        """All that has come; None: nothing has."""
        told, self._told = self._told, []
        return CommittedHere(told=told) if told else None
