"""What a rank has committed and not yet told, and how long its steps take."""

import statistics
import time
from collections import deque
from collections.abc import Callable

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Committed, Row, WorkerFact
from trainmover.worker.standing import Standing

FLUSH_NS = 250_000_000
"""Committed rows are told in batches this far apart: less work for everybody on the step's path."""

RECENT_STEPS = 64


class Ledger:
    """Committed rows on their way to the controller.

    rows      committed, not yet told: they travel with the rank's record, so that none is lost
    first_of  the epoch in force, until its first commit is told
    """

    def __init__(self, rank: Rank, standing: Standing, say: Callable[[WorkerFact], None]) -> None:
        self.rows: list[Row] = []
        self.first_of: Epoch | None = None
        self._rank = rank
        self._standing = standing
        self._say = say
        self._told_ns = 0
        self._commit_ns: int | None = None
        self._step_ns: deque[int] = deque(maxlen=RECENT_STEPS)

    def commit(self, step: Step, values: dict[str, float]) -> None:
        """Enter a step; the first of an epoch is told at once, with the gap it left."""
        now_ns = time.monotonic_ns()
        gap_ns = None if self._commit_ns is None else now_ns - self._commit_ns
        self._commit_ns = now_ns
        self.rows.append(row(step, values))
        if self.first_of is not None:
            self._tell(now_ns, gap_ns)
            return
        if gap_ns is not None:
            self._step_ns.append(gap_ns)
        if now_ns - self._told_ns > FLUSH_NS:
            self._tell(now_ns)

    def close(self) -> None:
        """No step follows: tell the last rows."""
        self._tell(time.monotonic_ns())

    def _tell(self, now_ns: int, gap_ns: int | None = None) -> None:
        if not self.rows:
            return
        median = int(statistics.median(self._step_ns)) // 1000 if self._step_ns else None
        self._say(
            Committed(
                rank=self._rank,
                epoch=self._standing.epoch,
                rows=self.rows,
                first=self.first_of is not None,
                gap_us=None if gap_ns is None else gap_ns // 1000,
                median_us=median,
            )
        )
        self.rows, self._told_ns, self.first_of = [], now_ns, None


def row(step: Step, values: dict[str, float]) -> Row:
    """One committed step, as of now."""
    return Row(step=step, at_us=time.time_ns() // 1000, values=values)
