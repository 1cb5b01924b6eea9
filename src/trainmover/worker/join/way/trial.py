# SPDX-License-Identifier: Apache-2.0
"""Whether a run in the sandbox would come to where its rank is by now.

The run that a standby holds stands in the loop where its shadow steps have ended. Who takes a rank
that has left that loop goes on from there (see `way`), and only where it arrives is it known
whether the script's variables are the rank's: the best weights so far, a teacher made of them,
whatever lines between passes keep. So that this is known before the rank is lost, a run that is of
no other use goes that way: when the rank is seen in another loop for the first time, in the next
pass again, and then each time that it has made AGAIN times as many steps.

It leaves no traces: where it would write or send something, it ends (`sandbox/process/traces.py`).
It takes no large state. So nothing is compared that hangs on tracked state; and what the script
does otherwise than its rank did, if it is no error of ours, says nothing.
"""

from trainmover.ids import Rank, Step
from trainmover.worker.join.lookout import pass_of
from trainmover.worker.join.shadow import Shadow
from trainmover.worker.join.way.journey import Journey
from trainmover.worker.join.way.way import Way
from trainmover.worker.standing import Unwind
from trainmover.worker.step.keeper import RankRecord

AGAIN = 4


class Trials:
    """Of one process: where its ranks were when that was tried."""

    def __init__(self) -> None:
        self._tried: dict[Rank, list[RankRecord]] = {}

    def are_due(self, rank: Rank, record: RankRecord) -> bool:
        """Whether it is to be tried now that the rank has come there."""
        *before, last = self._tried.get(rank, [None])
        if last is None:
            return True
        many_steps = not before or record.step >= AGAIN * last.step
        return many_steps and pass_of(record) != pass_of(last)

    def note(self, rank: Rank, record: RankRecord) -> None:
        """It is tried."""
        self._tried[rank] = [*self._tried.get(rank, [])[-1:], record]


def journey_to(shadow: Shadow, record: RankRecord) -> Journey:
    """From where the run stands to the fetch of that record, in the sandbox. Where it arrives it
    raises Unwind; StateMismatch if it must not become the rank."""
    member, refusal = shadow.member, shadow.refusal

    def arrive() -> None:
        refusal.check()
        raise Unwind

    member.calls = Step(record.step - 1)
    way = Way(member.rank, record)
    return Journey(member, way, arrive=arrive, refusal=refusal, number=shadow.number)
