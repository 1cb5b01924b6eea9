# SPDX-License-Identifier: Apache-2.0
"""Incidents that have left the job: since the newest bookmark in memory, before it in the journal.

What all of them come to (`Tally`) is counted as they leave, so that nobody reads them for a figure.
"""

from collections import Counter
from collections.abc import Iterable
from copy import deepcopy

from trainmover.controller.effects import Closed, Effect
from trainmover.controller.state import Incident, Job, Outcome
from trainmover.journal import Journal
from trainmover.server.history.bookmarks import closed
from trainmover.server.measures import PAUSE_S, Histogram
from trainmover.server.view.causes import cause_of


class Tally:
    """Of incidents, each taken once.

    count     (kind, cause, outcome) -> how many
    downtime  (kind,) -> of the job; phases: (kind, phase) -> how long it took
    moved     bytes that joiners took
    """

    def __init__(self, incidents: Iterable[Incident] = ()) -> None:
        self.count: Counter[tuple[str, str, str]] = Counter()
        self.downtime: dict[tuple[str, ...], Histogram] = {}
        self.phases: dict[tuple[str, ...], Histogram] = {}
        self.moved = 0
        for incident in incidents:
            self.take(incident)

    def take(self, incident: Incident) -> None:
        """One more."""
        kind, cause = str(incident.kind), cause_of(incident).replace(" ", "_") or "resumed"
        self.count[kind, cause, str(incident.outcome)] += 1
        self.moved += sum(one.bytes for one in incident.certificates)
        if incident.downtime_ms is not None:
            _add(self.downtime, (kind,), incident.downtime_ms)
        if incident.outcome is Outcome.DONE:
            for phase, took_ms in incident.phases_ms.items():
                _add(self.phases, (kind, phase), took_ms)

    def and_of(self, incidents: Iterable[Incident]) -> "Tally":
        """Of these too; this one stays as it is. Taken in the same order whoever has them: a sum
        that is less by the last bit is a counter that has begun anew to who scrapes it."""
        whole = deepcopy(self)
        for incident in incidents:
            whole.take(incident)
        return whole


class Incidents:
    """Of one journal, for its writer; `recent` have left since its newest bookmark.

    recent       by their number
    downtime_ms  of those that this controller has seen from beginning to end; redone: their steps
    """

    def __init__(self, journal: Journal, recent: Iterable[Incident] = ()) -> None:
        self._journal = journal
        self.recent = {one.number: one for one in recent}
        self.tally = Tally((closed(journal) | self.recent).values())
        self.downtime_ms, self.redone = 0.0, 0

    def take(self, effects: Iterable[Effect], since_us: int | None) -> None:
        """Of a decision. since_us: when this controller first heard of a commit."""
        for effect in effects:
            if isinstance(effect, Closed):
                self.recent[effect.incident.number] = effect.incident
                self.tally.take(effect.incident)
                begun_us = min(effect.incident.marks.values())
                if since_us is not None and begun_us >= since_us:
                    self.downtime_ms += effect.incident.downtime_ms or 0.0
                    self.redone += effect.incident.redone

    def of(self, job: Job, number: int) -> Incident | None:
        """The incident with this number; None: there was none."""
        for one in (*job.incidents, *self.recent.values()):
            if one.number == number:
                return one
        first = job.incidents[0].number if job.incidents else 1
        return closed(self._journal).get(number) if 0 < number < first else None

    def kept(self) -> None:
        """All that have left so far are in the journal."""
        self.recent = {}


def _add(seen: dict[tuple[str, ...], Histogram], labels: tuple[str, ...], took_ms: float) -> None:
    seen.setdefault(labels, Histogram(PAUSE_S)).add(took_ms / 1000.0)
