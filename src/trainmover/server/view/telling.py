# SPDX-License-Identifier: Apache-2.0
"""What people are told of a job: what has happened, what was printed, how far it is."""

from collections.abc import Callable
from dataclasses import replace

from trainmover.controller.events import EVENTS, SlowFound, WorkerSaid
from trainmover.controller.state import Job
from trainmover.ids import MachineId
from trainmover.journal import Journal
from trainmover.journal.file import NOTE
from trainmover.protocol.messages import Columns, Heartbeat, Output, Unwritten, Warned
from trainmover.server.history.past import Past
from trainmover.server.measures import Measures
from trainmover.server.surroundings import ByTheWay, Decided
from trainmover.server.view.nans import not_a_number, stopped_text
from trainmover.server.view.news import News
from trainmover.server.view.notices import Happened, Notice, Printed, Stepped
from trainmover.server.view.sentences import Sentence, sentence

NOTE_US_MIN = 1_000_000
SLOW_US_MIN = 60_000_000
"""From one loud finding to the next, where all machines share the cores of one host."""


class Telling:
    """It goes on where `past` ends. stop: the job, with an exit status, and why."""

    def __init__(
        self,
        journal: Journal,
        past: Past,
        *,
        watch: Callable[[Notice], None] | None,
        now: Callable[[], int],
        stop: Callable[[int, str], None],
    ) -> None:
        self.news = News(watch, past.told, journal, past.replayed)
        self.progress = past.progress
        self.measures = Measures()
        self._journal = journal
        self._job = past.job
        self._now = now
        self._stop = stop
        self._nan_told = False
        self._warned: frozenset[str] = frozenset()
        self._turned_away_us = 0
        self._slow_us: int | None = None

    def happened(self, moment: Decided) -> None:
        """An event was taken."""
        event, before, after = moment.event, moment.before, moment.after
        self._job = after
        self.measures.decided(before, after, event.at_us)
        said = self._once(event, sentence(before, event, after))
        if isinstance(event, SlowFound) and after.stragglers.moves is before.stragglers.moves:
            said = self._seldom(event, said, after)
        kind = type(event).__name__
        at_us = after.shown_us(event.at_us)
        self.news.add(
            Happened(moment.seq, at_us, kind, said.text, said.loud, event, before, after, said.good)
        )

    def _once(self, event: EVENTS, said: Sentence) -> Sentence:
        """What several ranks warn of in the same words is loud for the first of them."""
        match event:
            case WorkerSaid(fact=Warned(text=text)):
                new, self._warned = text not in self._warned, self._warned | {text}
                return replace(said, loud=said.loud and new)
            case _:
                return said

    def _seldom(self, event: SlowFound, said: Sentence, job: Job) -> Sentence:
        """Keep slowness on one host quiet for a minute, and then from one loud line to the next.

        Its processes take cores from each other by turns: that is no news of a machine.
        """
        if not said.loud or len({machine.host for machine in job.machines.values()}) != 1:
            return said
        if self._slow_us is None:
            self._slow_us = event.at_us
        if event.at_us - self._slow_us < SLOW_US_MIN:
            return replace(said, loud=False)
        self._slow_us = event.at_us
        return said

    def note(self, text: str, *, loud: bool = False) -> None:
        """A line for human eyes, in the journal and to whoever watches."""
        at_us, job = self._now(), self._job
        seq = self._journal.note(at_us, text)
        self.news.add(Happened(seq, job.shown_us(at_us), NOTE, text, loud, None, job, job))

    def turned_away(self, why: str) -> None:
        """A line in the event stream, at most one a second, whoever knocks how often."""
        at_us = self._now()
        if at_us - self._turned_away_us >= NOTE_US_MIN:
            self._turned_away_us = at_us
            self.note(why)

    def told(self, machine: MachineId, fact: ByTheWay) -> None:
        """Machines and workers say how it goes."""
        match fact:
            case Columns():
                self.measures.committed(self.progress.take(fact), self._now)
                if self.news.is_watched:
                    for rank, rows in fact.each():
                        self.news.tell(Stepped(rank, fact.epoch, rows))
                self._look_at_numbers(fact)
            case Output():
                self.news.tell(Printed(fact.rank, fact.stream, fact.text))
            case Unwritten(path=path, why=why):
                lost = "its lines are lost, the job goes on"
                self.note(f"{machine}: {path} cannot be written ({why}): {lost}", loud=True)
            case Heartbeat():
                self.progress.vaults[machine] = fact
            case _:
                self.progress.note(fact)

    def _look_at_numbers(self, rows: Columns) -> None:
        on_nan = self._job.spec.on_nan
        if on_nan == "ignore" or self._nan_told:
            return
        found = not_a_number(rows)
        self._nan_told = bool(found)
        if found and on_nan == "stop":
            self._stop(1, stopped_text(found))
        elif found:
            self.note(found, loud=True)
