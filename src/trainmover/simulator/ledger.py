"""Rows that a rank has committed, on their way to the controller; as the worker's own ledger."""

from collections import deque
from collections.abc import Callable

from trainmover.ids import Epoch, Rank
from trainmover.protocol.messages import Committed, Row

FLUSH_US = 250_000
TOLD_KEPT = 2


class Ledger:
    """rows: committed and not told; first_of: the epoch whose first commit is not told yet.

    unheard()  whether what is told may be lost with this machine, so that all is kept
    """

    def __init__(self, unheard: Callable[[], bool]) -> None:
        self.rows: list[Row] = []
        self.first_of = Epoch(0)
        self._unheard = unheard
        self._told: deque[list[Row]] = deque()
        self._told_us = 0

    @property
    def in_doubt(self) -> list[Row]:
        """Not told, or told lately: they travel with the rank's record."""
        return [row for told in self._told for row in told] + self.rows

    def commit(
        self, row: Row, rank: Rank, epoch: Epoch, now_us: int, say: Callable[[Committed], None]
    ) -> None:
        """One more. The first of an epoch is told at once, others in batches."""
        self.rows.append(row)
        if self.first_of or now_us - self._told_us > FLUSH_US:
            self.tell(rank, epoch, now_us, say)

    def tell(self, rank: Rank, epoch: Epoch, now_us: int, say: Callable[[Committed], None]) -> None:
        """All that were not told."""
        if not self.rows:
            return
        first = bool(self.first_of)
        gap = 5 if first else None
        rows, self.rows = self.rows, []
        fact = Committed(rank=rank, epoch=epoch, rows=rows, first=first, gap_us=gap, median_us=1)
        say(fact)
        self._told.append(rows)
        while len(self._told) > TOLD_KEPT and not self._unheard():
            self._told.popleft()
        self._told_us, self.first_of = now_us, Epoch(0)
