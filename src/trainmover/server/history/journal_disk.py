# SPDX-License-Identifier: Apache-2.0
"""A journal that its disk does not take for a while: it is tried again, and people are told."""

from collections.abc import Callable
from typing import Any, Protocol

from trainmover.errors import StateMismatch
from trainmover.journal import Journal

BEATS = 5
"""Of the server, from one try to the next."""


class Note(Protocol):
    def __call__(self, text: str, *, loud: bool = False) -> None: ...


class JournalDisk:
    """stop: the job, with an exit status, and why."""

    def __init__(self, journal: Journal, *, note: Note, stop: Callable[[int, str], None]) -> None:
        self._journal = journal
        self._note = note
        self._stop = stop
        self._told = False
        self._beats = 0

    def beat(self) -> None:
        """Look, and every now and then try."""
        journal = self._journal
        self._beats += 1
        if journal.unwritten and self._beats % BEATS == 0:
            self._try()
        if journal.unwritten and not self._told:
            self._told = True
            self._note(
                f"the journal {journal.path} cannot be written ({journal.why}): the job goes on, "
                "and what happens is kept in memory; make room there",
                loud=True,
            )
        elif self._told and not journal.unwritten:
            self._told = False
            self._note(f"the journal is written again, {self._whole()}", loud=True)

    def status(self) -> dict[str, Any]:
        """For `trainmover status`. unwritten: records that are in memory only."""
        journal = self._journal
        why = journal.why if journal.unwritten else ""
        return {"path": str(journal.path), "unwritten": journal.unwritten, "why": why}

    def last_words(self) -> str:
        """At the end: what it lacks for good; "" if nothing."""
        before = -1
        while self._journal.unwritten not in (0, before):
            before = self._journal.unwritten
            self._try()
        if not before or not self._journal.unwritten:
            return ""
        lacks = f"lacks its last {self._journal.unwritten} records"
        return f"The journal {self._journal.path} {lacks}: {self._journal.why}."

    def _try(self) -> None:
        try:
            self._journal.write_again()
        except StateMismatch as error:
            self._stop(1, str(error))

    def _whole(self) -> str:
        if not self._journal.lost:
            return "with all that was kept in memory"
        return f"but {self._journal.lost} batches of committed steps were too many for memory"
