"""One controller, from the journal that it finds to the end of its job. Pure.

    link --fact--> event --> journal --> decide --> effects --> links, surroundings

It knows no socket, clock or file: time comes with every call; links, journal and surroundings are
given. The server drives it with its loop; the simulator with a network and a disk that fail, so
what is proved there is what runs.
"""

from typing import TYPE_CHECKING

from trainmover.controller.clock import tick_due
from trainmover.controller.decide import decide
from trainmover.controller.effects import (
    Answer,
    Effect,
    End,
    Fence,
    FindCheckpoint,
    GiveUpCheckpoint,
    Publish,
    Send,
)
from trainmover.controller.events import (
    EVENTS,
    AgentSaid,
    ControllerReturned,
    KillRequested,
    Lost,
    MachinesLost,
    MoveRequested,
    StopRequested,
    Tick,
    WorkerSaid,
)
from trainmover.controller.state import Job
from trainmover.ids import MachineId
from trainmover.protocol.messages import AgentFact, Heard, JobSpec, Shutdown
from trainmover.server.accounts import Accounts
from trainmover.server.hearing import Hearing
from trainmover.server.reception import Reception
from trainmover.server.rows import Rows
from trainmover.server.surroundings import Book, Decided, Link, Surroundings

if TYPE_CHECKING:
    from trainmover.server.past import Past

BEAT_S = 0.2
QUIET_TICKS_MAX = 5
ENDED = "The job has ended: nothing was done."


class Control:
    """members: links to the machines that are in the job and here. over: how the job has ended.

    past  of the journal, if another controller has written it; it died at lost_us, if that is known
    """

    def __init__(
        self,
        spec: JobSpec,
        book: Book,
        around: Surroundings,
        *,
        at_us: int,
        past: "Past | None" = None,
        lost_us: int = 0,
    ) -> None:
        self.spec = spec
        self.job = Job(spec=spec) if past is None else past.job
        self.accounts = Accounts() if past is None else past.accounts
        self.over: End | None = None if past is None else past.over
        self.members: dict[MachineId, Link] = {}
        self._past = past
        self._book = book
        self._around = around
        self._hearing = Hearing(Rows(book), around, self)
        self.reception = Reception(self, around, at_us=at_us, lost_us=lost_us or at_us)
        self._ticked_us = at_us

    def go_on(self, at_us: int) -> None:
        """Where a controller has died; before anything else."""
        past = self._past
        assert past is not None
        if past.unused:
            why = f"{past.unused}: the journal was read from further back"
            self._around.note(why, loud=True)
        if past.cut:
            self._around.note(f"the crash has damaged the journal: {past.cut}", loud=True)
        undone = list(self.accounts.undone)
        self.take(ControllerReturned(at_us=at_us, cut=bool(past.cut)))
        for order in undone:
            self._around.save(order)
        self.reception.look(at_us)

    @property
    def alone(self) -> bool:
        """Nobody is left, and nobody may come back."""
        return not self.members and not self.accounts.away

    # --- requests ---

    def ask(self, event: MoveRequested | KillRequested) -> None:
        """It is answered once, now or later."""
        if self.over is None:
            self.take(event)
        else:
            self._around.answer(Answer(event.request, ok=False, text=ENDED))

    def stop(self, code: int, why: str, at_us: int, *, until_us: int = 0) -> None:
        """End the job in order. until_us: till then it may write one more checkpoint before."""
        if self.over is None:
            self.take(StopRequested(at_us=at_us, code=code, why=why, until_us=until_us))

    # --- events and effects ---

    def take(self, event: EVENTS) -> None:
        """Journal, decide, carry out, tell; in this order."""
        if isinstance(event, WorkerSaid | AgentSaid):
            # Who knows that this fact was taken counts on those before it.
            self._hearing.flush(event.at_us)
        if self.over is not None:
            return
        before = self.job
        seq = self._book.append(event)
        self.accounts.journaled(event, away=False)
        self.job, effects = decide(before, event)
        moment = Decided(seq, event, before, self.job, effects)
        for effect in effects:
            self._carry_out(effect)
        self._around.happened(moment)

    def _carry_out(self, effect: Effect) -> None:
        self.accounts.ordered(effect)
        match effect:
            case Send(machine=machine, order=order):
                if machine in self.members:
                    self.members[machine].send(order)
            case Fence(machine=machine):
                link = self.members.pop(machine, None)
                if link is not None:
                    link.abort()
            case Answer():
                self._around.answer(effect)
            case Publish() | GiveUpCheckpoint() | FindCheckpoint():
                self._around.save(effect)
            case End():
                self.over = effect
                self.dismiss(Shutdown())
                self._around.end(effect)

    def dismiss(self, order: Shutdown) -> None:
        """Tell all machines to leave."""
        for link in self.members.values():
            link.send(order)

    # --- links ---

    def said(self, link: Link, fact: AgentFact, at_us: int) -> None:
        """A fact from a machine of the job; raises ProtocolError if it cannot be read."""
        machine = link.machine
        if machine is None or self.members.get(machine) is not link:
            return
        account = self.accounts.of.get(machine)
        if account is not None:
            self._hearing.said(machine, account, fact, at_us)

    def lost(self, link: Link, why: str, at_us: int) -> None:
        """A connection has ended, whoever it was."""
        self._lost([link], why, at_us)

    def _lost(self, links: list[Link], why: str, at_us: int) -> None:
        lost = []
        for link in links:
            machine = link.machine
            if machine is None or self.members.get(machine) is not link:
                continue
            del self.members[machine]
            link.abort()
            if machine in self.job.machines:
                lost.append(Lost(machine=machine, why=why, heard_us=link.heard_us))
        if lost:
            self.take(MachinesLost(at_us=at_us, lost=lost))

    # --- time ---

    def beat(self, at_us: int) -> None:
        """To be called every `BEAT_S`; links have counted it."""
        silent = [link for link in self.members.values() if link.quiet_ticks >= QUIET_TICKS_MAX]
        self._lost(silent, f"no heartbeat for {QUIET_TICKS_MAX * BEAT_S:.0f} s", at_us)
        self._tell_what_is_safe(at_us)
        self.reception.beat(at_us)
        if self.over is None and tick_due(self.job, self._ticked_us, at_us):
            self._ticked_us = at_us
            self.take(Tick(at_us=at_us))

    def _tell_what_is_safe(self, at_us: int) -> None:
        """All that was said until now is in the journal afterwards."""
        accounts = {machine: self.accounts.of.get(machine) for machine in self.members}
        news = {m: account for m, account in accounts.items() if account and account.untold}
        safe = {account.incarnation: account.facts for account in news.values()}
        if self._hearing.flush(at_us, safe):
            for machine, account in news.items():
                account.told = account.facts
                self.members[machine].send(Heard(facts=account.facts))

    def write_rows(self) -> None:
        """All that have come are in the journal. Raises StateMismatch if they contradict it."""
        self._hearing.rows.flush()
