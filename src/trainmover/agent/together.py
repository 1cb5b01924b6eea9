# SPDX-License-Identifier: Apache-2.0
"""What the workers of a machine say at the same moment: one fact for all of them. Pure.

All ranks pass a gate together, and all answer an order about membership, so their workers speak at
the same moment. Said one by one each would be a frame, a record in the journal and a decision of
its own; at eight ranks a machine that is most of what a controller does.

    steps     of many commits, which nobody waits for
    answers   of one kind, for one epoch: the controller waits for all ranks, so for none the longer

Nothing is out of its turn for whoever hears it: steps go before the answers that follow them, and
whatever else is said goes behind both.
"""

from trainmover.protocol.messages import (
    AgentFact,
    Committed,
    CommittedHere,
    Joint,
    SaidHere,
    columns_of,
)

WAIT_S = 0.02
"""For the others; a small part of the time for which workers keep what they have told."""


class Together:
    """nproc: workers of this machine.

    >>> here = Together(nproc=2)
    >>> one, other = (Committed(rank=rank, epoch=3, rows=[]) for rank in (6, 7))
    >>> here.take(one), [len(said.told) for said in here.take(other)], here.given()
    ([], [2], [])
    """

    def __init__(self, nproc: int) -> None:
        self._nproc = nproc
        self._steps: list[Committed] = []
        self._answers: list[Joint] = []

    @property
    def waits(self) -> bool:
        """Whether something is to be said."""
        return bool(self._steps or self._answers)

    def take(self, fact: Joint) -> list[AgentFact]:
        """What is to be said now: it waits for the other workers, or completes what has waited."""
        before = self.given() if self._goes_behind(fact) else []
        same = self._steps if _is_by_the_way(fact) else self._answers
        same.append(fact)  # type: ignore[arg-type]
        newest = self._answers or self._steps
        all_have = len({one.rank for one in newest}) >= self._nproc
        return before + (self.given() if all_have else [])

    def _goes_behind(self, fact: Joint) -> bool:
        """Whether what waits has to be said before it."""
        if _is_by_the_way(fact):
            return any(one.rank == fact.rank for one in self._answers)
        return any((type(one), one.epoch) != (type(fact), fact.epoch) for one in self._answers)

    def given(self) -> list[AgentFact]:
        """All that has come."""
        steps, self._steps = self._steps, []
        answers, self._answers = self._answers, []
        said: list[AgentFact] = [CommittedHere(told=columns_of(steps))] if steps else []
        return [*said, SaidHere(told=answers)] if answers else said


def _is_by_the_way(fact: Joint) -> bool:
    return isinstance(fact, Committed) and not fact.first
