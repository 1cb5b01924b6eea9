# SPDX-License-Identifier: Apache-2.0
"""Rows that a rank has committed: when they are told, and which may not have been heard. Pure.

    enter -> rows -> say_rows -> told lately -> forgotten
             `------- in doubt --------'

What is in doubt travels with the rank's record, so that no machine takes a committed row with it.
Rows that are told twice are no news.
"""

import statistics
from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import Generic, TypeVar

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Committed, Row, Took

FLUSH_NS = 250_000_000
"""Committed rows are told in batches this far apart: less work for everybody on the step's path."""
LONG_NS, LONG_OF_RANK_NS = 100_000_000, 100_000
"""A step that took so long is told at once: whoever is slow is found steps earlier. With many ranks
it has to be longer, so that all together tell ten thousand times a second at most."""

RECENT_STEPS = 64
TOLD_KEPT, ARRIVES_NS = 2, 2 * FLUSH_NS
"""Batches that are kept at least, and for how long each is: then it has arrived."""
UNHEARD_KEPT = 1024
"""Rows, while there is no controller: what a machine has told in vain it may take with it. They are
in the record of every step, so there is a limit; it is minutes of most jobs."""

Kept = TypeVar("Kept")


class Rows(Generic[Kept]):
    """Of one rank. What is kept of a row in its record is the affair of who holds them.

    rows      committed, not yet told
    took      what this rank itself has taken for those of them that nothing has disturbed
    first_of  the epoch in force, until its first commit is told
    """

    def __init__(self, ranks: int) -> None:
        """ranks: of the job"""
        self.rows: list[Row] = []
        self.took: list[Took] = []
        self.first_of: Epoch | None = None
        self._kept: list[Kept] = []
        self._told: deque[tuple[int, list[Kept]]] = deque()
        self._long_ns = max(LONG_NS, ranks * LONG_OF_RANK_NS)
        self._told_ns = 0
        self._gap_ns: int | None = None
        self._commit_ns: int | None = None
        self._step_ns: deque[int] = deque(maxlen=RECENT_STEPS)

    def enter(self, row: Row, kept: Kept, now_ns: int, took: Took | None = None) -> bool:
        """One more. Whether they are to be told now: the first of an epoch is at once, with the gap
        it left."""
        gap_ns = None if self._commit_ns is None else now_ns - self._commit_ns
        self._commit_ns = now_ns
        self._add(row, kept)
        if self.first_of is not None:
            self._gap_ns = gap_ns
            return True
        if gap_ns is not None:
            self._step_ns.append(gap_ns)
        if took is not None:
            self.took.append(took)
        is_long = gap_ns is not None and gap_ns >= self._long_ns
        return is_long or now_ns - self._told_ns > FLUSH_NS

    def inherit(self, rows: Iterable[tuple[Row, Kept]], committed: Step) -> None:
        """Those of the rank whose place is taken, up to this step: they may not be told."""
        self.rows, self._kept, self.took = [], [], []
        self._told.clear()
        for row, kept in rows:
            if row.step <= committed:
                self._add(row, kept)

    def _add(self, row: Row, kept: Kept) -> None:
        self.rows.append(row)
        self._kept.append(kept)

    @property
    def in_doubt(self) -> list[Kept]:
        """Rows that may not have reached the controller: not told yet, or lately to an agent that
        may have died with them."""
        return [*chain.from_iterable([kept for _, kept in self._told]), *self._kept]

    @property
    def median_us(self) -> int | None:
        """Of the undisturbed steps; None before there are any."""
        return int(statistics.median(self._step_ns)) // 1000 if self._step_ns else None

    def go_on_from(self, before: "Rows[Kept]") -> None:
        """The rank goes back to an older step: the gap began with its last commit."""
        self._commit_ns, self._step_ns = before._commit_ns, before._step_ns

    def say_rows(self, rank: Rank, epoch: Epoch, now_ns: int, *, unheard: bool) -> Committed | None:
        """All that were not told; None: there are none. unheard: what is told may be lost with this
        machine, so that all is kept."""
        if not self.rows:
            return None
        fact = Committed(
            rank=rank,
            epoch=epoch,
            rows=self.rows,
            first=self.first_of is not None,
            gap_us=None if self._gap_ns is None else self._gap_ns // 1000,
            median_us=self.median_us,
            took=self.took,
        )
        self._told.append((now_ns, self._kept))
        while len(self._told) > TOLD_KEPT and not self._is_kept(now_ns, unheard=unheard):
            self._told.popleft()
        self.rows, self._kept, self.took = [], [], []
        self._told_ns, self._gap_ns, self.first_of = now_ns, None, None
        return fact

    def _is_kept(self, now_ns: int, *, unheard: bool) -> bool:
        """The oldest batch that was told."""
        told_ns, _ = self._told[0]
        has_room = sum(len(kept) for _, kept in self._told) <= UNHEARD_KEPT
        return has_room and (unheard or now_ns - told_ns < ARRIVES_NS)
