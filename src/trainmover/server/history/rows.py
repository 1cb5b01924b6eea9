# SPDX-License-Identifier: Apache-2.0
"""Committed rows on their way to the journal: in batches, and past `decide`. Pure."""

from collections.abc import Mapping

from trainmover.journal.rows import Unequal
from trainmover.protocol.messages import Columns
from trainmover.server.surroundings import Book


class Rows:
    """Rows that are not in the journal yet; it is the caller's."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._batches: list[Columns] = []

    @property
    def waiting(self) -> int:
        """Batches that are not written yet."""
        return len(self._batches)

    def take(self, rows: Columns) -> None:
        """Keep them."""
        self._batches.append(rows)

    def flush(self, safe: Mapping[str, int] | None = None) -> list[Unequal]:
        """Write what was taken; returns what contradicts what was written. Raises StateMismatch
        instead where the job wants exact numbers.

        safe  incarnation -> facts that are in the journal once this is
        """
        batches, self._batches = self._batches, []
        return self._book.append_batches(batches, safe) if batches or safe else []
