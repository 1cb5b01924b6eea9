"""Committed rows on their way to the journal: in batches, and past `decide`."""

from trainmover.journal import Journal
from trainmover.journal.journal import Batch
from trainmover.protocol.messages import Committed, Row


class Rows:
    """Rows that are not in the journal yet; it is the caller's."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._batches: list[Batch] = []

    def take(self, fact: Committed) -> Committed | None:
        """Keep the rows; what is left of the fact for `decide`, if it is the epoch's first.

        Reported values are not passed on: JSON has no NaN, and no decision depends on a loss.
        """
        self._batches.append((fact.rank, fact.epoch, fact.rows))
        if not fact.first:
            return None
        return Committed(
            rank=fact.rank,
            epoch=fact.epoch,
            rows=[Row(step=row.step, at_us=row.at_us, values={}) for row in fact.rows[:1]],
            first=True,
            gap_us=fact.gap_us,
            median_us=fact.median_us,
        )

    def flush(self) -> None:
        """Write what was taken. Raises StateMismatch if it contradicts what was written."""
        batches, self._batches = self._batches, []
        if batches:
            self._journal.append_batches(batches)
