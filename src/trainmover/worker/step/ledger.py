"""What a rank has committed and not yet told, and how long its steps take."""

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Committed, Draw, Row, WorkerFact
from trainmover.worker.standing import GuardedStanding
from trainmover.worker.step.keeper import row_bytes

FLUSH_NS = 250_000_000
"""Committed rows are told in batches this far apart: less work for everybody on the step's path."""

RECENT_STEPS = 64
TOLD_KEPT = 2
"""Batches, so that the newest of them has had at least one interval to arrive."""
UNHEARD_KEPT = 1024
"""Rows, while there is no controller: what a machine has told in vain it may take with it. They are
in the record of every step, so there is a limit; it is minutes of most jobs."""


class Ledger:
    """Committed rows on their way to the controller.

    rows      committed, not yet told
    first_of  the epoch in force, until its first commit is told
    """

    def __init__(
        self, rank: Rank, standing: GuardedStanding, say: Callable[[WorkerFact], None]
    ) -> None:
        self.rows: list[Row] = []
        self._encoded: list[bytes] = []
        self._told: deque[list[bytes]] = deque()
        self.first_of: Epoch | None = None
        self._rank = rank
        self._standing = standing
        self._say = say
        self._told_ns = 0
        self._commit_ns: int | None = None
        self._step_ns: deque[int] = deque(maxlen=RECENT_STEPS)

    def commit(self, step: Step, values: dict[str, float], samples: Sequence[Draw] = ()) -> None:
        """Enter a step; the first of an epoch is told at once, with the gap it left."""
        now_ns = time.monotonic_ns()
        gap_ns = None if self._commit_ns is None else now_ns - self._commit_ns
        self._commit_ns = now_ns
        self._add(row(step, values, samples))
        if self.first_of is not None:
            self._tell(now_ns, gap_ns)
            return
        if gap_ns is not None:
            self._step_ns.append(gap_ns)
        if now_ns - self._told_ns > FLUSH_NS:
            self._tell(now_ns)

    def take_over(self, rows: Iterable[Row]) -> None:
        """Those of the rank whose place is taken, which may not be told."""
        self.rows, self._encoded = [], []
        for one in rows:
            self._add(one)

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self._encoded.append(row_bytes(row))

    @property
    def in_doubt(self) -> list[bytes]:
        """Rows that may not have reached the controller: not told yet, or lately to an agent that
        may have died with them. They travel with the rank's record; rows told twice are no news."""
        return [*chain.from_iterable(self._told), *self._encoded]

    @property
    def median_us(self) -> int | None:
        """Of the undisturbed steps; None before there are any."""
        return int(statistics.median(self._step_ns)) // 1000 if self._step_ns else None

    def go_on_from(self, before: "Ledger") -> None:
        """The rank goes back to an older step: the gap began with its last commit."""
        self._commit_ns, self._step_ns = before._commit_ns, before._step_ns

    def close(self) -> None:
        """No step follows: tell the last rows."""
        self._tell(time.monotonic_ns())

    def _tell(self, now_ns: int, gap_ns: int | None = None) -> None:
        if not self.rows:
            return
        self._say(
            Committed(
                rank=self._rank,
                epoch=self._standing.epoch,
                rows=self.rows,
                first=self.first_of is not None,
                gap_us=None if gap_ns is None else gap_ns // 1000,
                median_us=self.median_us,
            )
        )
        self._told.append(self._encoded)
        while len(self._told) > TOLD_KEPT and not self._keeps_told():
            self._told.popleft()
        self.rows, self._encoded, self._told_ns, self.first_of = [], [], now_ns, None

    def _keeps_told(self) -> bool:
        return self._standing.unheard and sum(map(len, self._told)) <= UNHEARD_KEPT


def row(step: Step, values: dict[str, float], samples: Sequence[Draw] = ()) -> Row:
    """One committed step, as of now."""
    return Row(step=step, at_us=time.time_ns() // 1000, values=values, samples=list(samples))
