"""The gate of a step: whoever comes through knows that the step is committed everywhere.

One all-reduce of three integers over all ranks, on a group of its own. Two say that all ranks are
in the same step, the third carries the pause flag of a planned move, so all stop at one boundary.
An all-reduce that is interrupted decides nothing: ranks may disagree on whether it came through.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from trainmover.comm import Drained, groups
from trainmover.errors import StateMismatch, UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.worker.drill import Drills
from trainmover.worker.standing import Standing

GATE = "gate"


class Retry(BaseException):
    """The step is aborted. Not an Exception: a script's `except Exception` lets it pass."""


class Gate:
    """Of one rank, for all its steps.

    tainted  whether what was computed since the last boundary may be garbage
    """

    def __init__(
        self,
        rank: Rank,
        world_size: int,
        *,
        standing: Standing,
        drills: Drills,
        tainted: Callable[[], bool],
    ) -> None:
        self._rank = rank
        self._standing = standing
        self._drills = drills
        self._tainted = tainted
        self._group = groups.private(GATE, rank, world_size)

    def passes(self, step: Step) -> bool:
        """Enter with the record safe. False: interrupted before or inside, the verdict decides."""
        with self._standing.changed:
            if self._tainted():
                return False
            self._standing.gate = step
        self._drills.at("gate", step)
        return self._agree(step)

    def _agree(self, step: Step) -> bool:
        standing = self._standing
        flags = torch.tensor([step, -step, standing.pause_flag], dtype=torch.int64)
        try:
            self._group.all_reduce(flags, dist.ReduceOp.MAX)
        except Drained:
            return False
        newest, oldest, pause = int(flags[0]), -int(flags[1]), int(flags[2])
        with standing.changed:
            if standing.pending:
                return False
            if newest != oldest:
                raise UserError(
                    f"Rank {self._rank} is in step {step}, another in step "
                    f"{newest if newest != step else oldest}.",
                    means="The ranks have called a different number of steps; the job ends.",
                    do="Every rank must call the functions marked @job.step equally often.",
                )
            standing.committed, standing.gate = step, Step(0)
            standing.pause_at = max(standing.pause_at, Epoch(pause))
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
        standing = self._standing
        with standing.changed:
            verdict = standing.await_verdict()
            entered, standing.gate = standing.gate == step, Step(0)
            if verdict.committed < step:
                raise Retry
            if not entered:
                raise StateMismatch(
                    f"Step {step} was ordered to commit, "
                    f"but rank {self._rank} was not in its gate.",
                    means="The job must not go on with this rank.",
                    do="Please report this with the job's journal.",
                )
            standing.committed = step
