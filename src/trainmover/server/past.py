"""What a controller that takes over a journal knows: `decide` folded over its events.

Effects that were for machines are kept until those are back. What was for the host and has left no
result in the journal is carried out once more, which must do no harm. Answers are dropped: who
asked has seen the connection end.
"""

from dataclasses import dataclass, field

from trainmover.controller.decide import decide
from trainmover.controller.effects import (
    Effect,
    End,
    FindCheckpoint,
    GiveUpCheckpoint,
    Publish,
)
from trainmover.controller.events import (
    EVENTS,
    CheckpointFailed,
    CheckpointFound,
    CheckpointPublished,
)
from trainmover.controller.state import Job
from trainmover.journal import Journal
from trainmover.journal.journal import NOTE
from trainmover.server.accounts import Accounts
from trainmover.server.notices import Happened
from trainmover.server.progress import RECENT_STEPS, Progress
from trainmover.server.sentences import Sentence, sentence

HostOrder = Publish | GiveUpCheckpoint | FindCheckpoint


@dataclass
class Past:
    """The end of a journal.

    undone  orders to the host of which it is not known that they were carried out
    over    the job has ended
    at_us   of the newest record; later ones must not have an earlier time
    cut     what a crash had torn off the journal; "" if nothing
    """

    job: Job
    accounts: Accounts = field(default_factory=Accounts)
    progress: Progress = field(default_factory=Progress)
    undone: list[HostOrder] = field(default_factory=list)
    happened: list[Happened] = field(default_factory=list)
    over: End | None = None
    at_us: int = 0
    cut: str = ""

    @classmethod
    def of(cls, journal: Journal) -> "Past":
        """Of one that was taken over. Raises UserError."""
        past = cls(Job(spec=journal.spec), cut=journal.cut)
        for entry in journal.entries():
            before = past.job
            said = Sentence(entry.text)
            if entry.event is not None:
                past.take(entry.event)
                said = sentence(before, entry.event, past.job)
            past.at_us = max(past.at_us, entry.at_us)
            past.happened.append(
                Happened(
                    entry.seq,
                    entry.at_us,
                    NOTE if entry.event is None else entry.kind,
                    said.text,
                    said.loud,
                    entry.event,
                    before,
                    past.job,
                )
            )
        safe = journal.safe()
        for account in past.accounts.of.values():
            account.facts = max(account.facts, safe.get(account.incarnation, 0))
        past.progress.restore(journal.newest_rows(RECENT_STEPS + 1))
        return past

    def take(self, event: EVENTS) -> None:
        """One event, as the controller that journaled it took it."""
        self.accounts.journaled(event, away=True)
        self._has_result(event)
        self.job, effects = decide(self.job, event)
        for effect in effects:
            self._follow(effect)

    def _follow(self, effect: Effect) -> None:
        self.accounts.ordered(effect)
        match effect:
            case Publish() | GiveUpCheckpoint() | FindCheckpoint():
                self.undone.append(effect)
            case End():
                self.over = effect
            case _:
                pass

    def _has_result(self, event: EVENTS) -> None:
        """The host carries out one order after the other: those before this one are done too."""
        for index, order in enumerate(self.undone):
            if _is_result(event, order):
                del self.undone[: index + 1]
                return


def _is_result(event: EVENTS, order: HostOrder) -> bool:
    match event, order:
        case CheckpointPublished(), Publish():
            return event.checkpoint == order.checkpoint
        case CheckpointFailed(), Publish():
            place = order.checkpoint.step, order.checkpoint.epoch
            return (event.step, event.epoch) == place
        case CheckpointFound(), FindCheckpoint():
            return event.epoch == order.epoch
        case _:
            return False
