# SPDX-License-Identifier: Apache-2.0
"""What a controller that takes over a journal knows: `decide` folded over its events.

It begins with the newest bookmark, if there is one, and with the first event otherwise; which of
the two makes no difference but in time. Effects that were for machines are kept until those are
back. What was for the host and has left no result in the journal is carried out once more, which
must do no harm. Answers are dropped: who asked has seen the connection end.
"""

from dataclasses import dataclass, field

from trainmover.controller.decide import decide
from trainmover.controller.effects import Closed, End
from trainmover.controller.events import EVENTS
from trainmover.controller.state import Incident, Job
from trainmover.journal import Journal
from trainmover.server.history.bookmarks import find
from trainmover.server.machines.accounts import Accounts
from trainmover.server.view.notices import Told
from trainmover.server.view.progress import RECENT_STEPS, Progress
from trainmover.server.view.sentences import Sentence, sentence


@dataclass
class Past:
    """The end of a journal.

    seq       of its newest entry
    replayed  number of the event after which `told` begins
    closed    incidents that have left the job since then
    over      the job has ended
    at_us     of the newest record; later ones must not have an earlier time
    cut       what a crash had torn off the journal; "" if nothing
    unused    why a bookmark was not gone on from; "" if none was in doubt
    """

    job: Job
    accounts: Accounts = field(default_factory=Accounts)
    progress: Progress = field(default_factory=Progress)
    told: list[Told] = field(default_factory=list)
    closed: list[Incident] = field(default_factory=list)
    over: End | None = None
    seq: int = 0
    replayed: int = 0
    at_us: int = 0
    cut: str = ""
    unused: str = ""

    @classmethod
    def of(cls, journal: Journal) -> "Past":
        """Of one that was taken over. Raises UserError."""
        past = cls(Job(spec=journal.spec), seq=journal.seq, cut=journal.cut)
        past._begin(journal)
        for entry in journal.entries(past.replayed):
            before = past.job
            said = Sentence(entry.text)
            if entry.event is not None:
                past.take(entry.event)
                said = sentence(before, entry.event, past.job)
            past.at_us = max(past.at_us, entry.at_us)
            shown_us = past.job.shown_us(entry.at_us)
            past.told.append(Told(entry.seq, shown_us, entry.kind, said.text, entry.event))
        safe = journal.safe()
        for account in past.accounts.of.values():
            account.facts = max(account.facts, safe.get(account.incarnation, 0))
        past.progress.restore(journal.newest_rows(RECENT_STEPS + 1))
        return past

    def _begin(self, journal: Journal) -> None:
        found = find(journal)
        if found.unused:
            journal.drop_bookmarks(after=found.seq)
        self.replayed, self.unused = found.seq, found.unused
        if found.known is not None:
            self.job, self.accounts = found.known
            (last,) = journal.entries(found.seq - 1, found.seq)
            self.at_us = last.at_us

    def take(self, event: EVENTS) -> None:
        """One event, as the controller that journaled it took it."""
        self.accounts.journaled(event, away=True)
        self.job, effects = decide(self.job, event)
        for effect in effects:
            self.accounts.ordered(effect)
            if isinstance(effect, End):
                self.over = effect
            elif isinstance(effect, Closed):
                self.closed.append(effect.incident)
