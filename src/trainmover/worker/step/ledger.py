# SPDX-License-Identifier: Apache-2.0
"""What a rank has committed and not yet told, as bytes for its record; and how long its steps take.

When rows are told and how long they are kept is decided by `rank.told`.
"""

import time
from collections.abc import Callable, Iterable, Sequence

from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Draw, Row, Took, WorkerFact
from trainmover.rank.told import Rows
from trainmover.worker.standing import GuardedStanding
from trainmover.worker.step.keeper import row_bytes, row_of


class Ledger(Rows[bytes]):
    """Committed rows on their way to the controller."""

    def __init__(
        self,
        rank: Rank,
        ranks: int,
        standing: GuardedStanding,
        say: Callable[[WorkerFact], None],
    ) -> None:
        """ranks: of the job"""
        super().__init__(ranks)
        self._rank = rank
        self._standing = standing
        self._say = say

    def commit(
        self,
        step: Step,
        values: dict[str, float],
        samples: Sequence[Draw] = (),
        took: Took | None = None,
    ) -> None:
        """Enter a step."""
        now_ns = time.monotonic_ns()
        one = row(step, values, samples)
        if self.enter(one, row_bytes(one), now_ns, took):
            self._tell(now_ns)

    def take_over(self, rows: Iterable[bytes], committed: Step) -> None:
        """Those of the rank whose place is taken, which may not be told."""
        self.inherit(((row_of(kept), kept) for kept in rows), committed)

    def close(self) -> None:
        """No step follows: tell the last rows."""
        self._tell(time.monotonic_ns())

    def _tell(self, now_ns: int) -> None:
        standing = self._standing
        fact = self.say_rows(self._rank, standing.epoch, now_ns, unheard=standing.unheard)
        if fact is not None:
            self._say(fact)


def row(step: Step, values: dict[str, float], samples: Sequence[Draw] = ()) -> Row:
    """One committed step, as of now."""
    return Row(step=step, at_us=time.time_ns() // 1000, values=values, samples=list(samples))
