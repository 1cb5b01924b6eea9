# SPDX-License-Identifier: Apache-2.0
"""The gate of a step: whoever comes through knows that the step is committed everywhere.

One all-reduce of seven integers over all ranks, on a group of its own. Two say that all ranks are
in the same step, the third carries the pause flag of a planned move, so all stop at one boundary.
The fourth says that all are to take a snapshot at the boundary, or that the one on its way is void
(`rank.cuts`), the fifth that some rank has found bulk state changed before a gate (`Changes`). The
last two say whether ranks that were all alike still are, as far as a sample shows (`likeness`). An
all-reduce that is interrupted decides nothing: ranks may disagree on whether it came through.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from trainmover.comm import Drained, groups
from trainmover.errors import StateMismatch
from trainmover.ids import Epoch, Rank, Step
from trainmover.loops.turns import Retry
from trainmover.rank.cuts import WANTED
from trainmover.worker.drill import Drills
from trainmover.worker.keep.snapshots import Snapshots
from trainmover.worker.standing import GuardedStanding
from trainmover.worker.step.likeness import Likeness

GATE = "gate"


class Gate:
    """Of one rank, for all its steps.

    snapshots  say when one is due
    drains  whether collectives end with what their buffers hold
    at_return  steps of this epoch commit at their return, since only some ranks have an optimizer:
             the others may wait for what those have updated, and come to no gate before
    early    steps of some rank change bulk state before their gate
    cut      whether a snapshot is due at this boundary, or one on its way on some rank
    likeness  whether all ranks hold the same
    given_up  calls of a step that have raised once they had made collectives, and were no step
    """

    def __init__(
        self,
        rank: Rank,
        world_size: int,
        *,
        standing: GuardedStanding,
        snapshots: Snapshots,
        drills: Drills,
        drains: Callable[[], bool],
    ) -> None:
        self._rank = rank
        self._standing = standing
        self._snapshots = snapshots
        self._drills = drills
        self._drains = drains
        self.at_return = self.early = False
        self.cut = 0
        self.likeness = Likeness()
        self.given_up = 0
        self._mode_of = Epoch(0)
        self._group = groups.private(GATE, rank, world_size)

    def passes(self, step: Step) -> bool:
        """Enter with the record safe. False: interrupted before or inside, the verdict decides."""
        with self._standing.lock:
            if not self._standing.enter_gate(step, drains=self._drains()):
                return False
        if self._drills.planned:
            self._drills.at("gate", step)
        return self._agree(step)

    def _agree(self, step: Step) -> bool:
        standing = self._standing
        cut = self._snapshots.flag(self._rank, step)
        asked = [step, -step, standing.pause_flag, cut, self.early]
        try:
            flags = self._group.largest([*asked, *self.likeness.asks()])
        except Drained:
            return False
        newest, minus_oldest, pause, cut, early, *likeness = flags
        oldest = -minus_oldest
        with standing.lock:
            passes = standing.pass_gate(
                self._rank,
                step,
                newest=Step(newest),
                oldest=Step(oldest),
                pause=Epoch(pause),
                cut=cut == WANTED,
            )
            if not passes:
                return False
        self.early, self.cut = bool(early), cut
        self._snapshots.agreed(cut)
        self.likeness.hears(*likeness)
        return True

    def peers(self) -> list[int]:
        """See `PrivateGroup.peers`."""
        return self._group.peers()

    @property
    def mode_is_known(self) -> bool:
        """Whether all ranks of this epoch know where steps commit."""
        return self._mode_of == self._standing.epoch

    def settles_mode(self, *, updates: bool) -> bool:
        """Have all ranks know it, before the first step in an epoch: who joins has not heard, nor
        who was told the last step's verdict. False if the epoch ends first.

        updates: whether this rank has an optimizer

        Raises StateMismatch, on all ranks, if they have given up more or fewer calls of a step once
        these had made collectives: the next ones of some would meet those of another batch."""
        likeness = self.likeness
        asked: list[int] = [self.early, likeness.known, likeness.vain]
        asked += [updates, not updates, self.given_up, -self.given_up]
        epoch = self._standing.epoch
        try:
            flags = self._group.largest(asked)
        except Drained:
            return False
        early, known, vain, some, others, most, minus_least = flags
        if most != -minus_least:
            raise _stand_apart()
        self.at_return, self.early = bool(some and others), bool(early)
        likeness.begin_epoch(known=bool(known), vain=bool(vain))
        self._mode_of = epoch
        return True

    def gather(self, mine: Tensor) -> Tensor:
        """[rank, ...] of what every rank gives, int64 of one shape. All ranks call it in the same
        place. Raises Drained if the epoch ends first."""
        rows = torch.zeros((self._group.size, *mine.shape), dtype=torch.int64)
        rows[self._rank] = mine
        self._group.all_reduce(rows)
        return rows

    def await_verdict(self, step: Step) -> None:
        """Wait for the controller's word on this step. Returns: commit. Raises Retry: abort."""
        if not self._standing.until(lambda: self._standing.judged(self._rank, step)):
            raise Retry


def _stand_apart() -> StateMismatch:
    return StateMismatch(
        "A rank was lost where ranks had raised an exception in a step that had made collectives, "
        "and had caught it: some of them have left that step, others are still to make it.",
        means="Their next collectives would meet those of another batch.",
        do="Let a step that is to be left out return before its first collective, or make its "
        "update with gradients of zero.",
    )
