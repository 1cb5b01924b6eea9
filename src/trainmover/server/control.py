# SPDX-License-Identifier: Apache-2.0
"""One controller, from the journal that it finds to the end of its job. Pure.

    link --fact--> event --> journal --> decide --> effects --> links, surroundings

It knows no socket, clock or file: time comes with every call; links, journal and surroundings are
given. The server drives it with its loop; the simulator with a network and a disk that fail, so
what is proved there is what runs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from trainmover.controller.clock import tick_due
from trainmover.controller.decide import decide
from trainmover.controller.effects import (
    Acquire,
    Answer,
    Closed,
    Effect,
    End,
    Fence,
    FindCheckpoint,
    GiveUpCheckpoint,
    Publish,
    Release,
    Send,
)
from trainmover.controller.events import (
    EVENTS,
    REQUESTS,
    AgentSaid,
    ContactChanged,
    ControllerReturned,
    Lost,
    MachinesLost,
    StopRequested,
    Tick,
    WorkerSaid,
    WorkersSaid,
)
from trainmover.controller.policies.anomalies.look import Look
from trainmover.controller.policies.guard import broken_text, describe
from trainmover.controller.policies.stragglers.pace import Pace
from trainmover.controller.state import Job
from trainmover.ids import MachineId
from trainmover.journal.rows import Unequal
from trainmover.protocol.deadlines import beats
from trainmover.protocol.messages import (
    AgentFact,
    Columns,
    Found,
    Heard,
    Heartbeat,
    JobSpec,
    LookFor,
    Shutdown,
)
from trainmover.server.hearing import Hearing
from trainmover.server.history.rows import Rows
from trainmover.server.machines.absence import Absence, Dialled
from trainmover.server.machines.accounts import Accounts
from trainmover.server.machines.carrying import Carrying
from trainmover.server.machines.reception import Reception
from trainmover.server.surroundings import Book, Decided, Link, Surroundings

if TYPE_CHECKING:
    from trainmover.server.history.past import Past

FRESH_TICKS = 1
ENDED = "The job has ended: nothing was done."
NOT_BACK = "it did not come back to the controller, which was restarted"


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
        self.carrying = Carrying(spec.relays_above, self.members, around)
        self.absence = Absence(spec.patience_s, spec.deadlines, after_another=past is not None)
        self._past = past
        self._book = book
        self._around = around
        self.anomalies = Look()
        self.pace = Pace(self.anomalies.took)
        self._hearing = Hearing(Rows(book), around, self)
        self.reception = Reception(self, around, lost_us=lost_us or at_us)
        self._catching_up: dict[MachineId, int] = {}  # Facts that its agent has said.
        self._off: set[str] = set()  # Policies that have raised here.
        self._ticked_us = at_us
        self._beats = 0
        self._over_beats = 0
        self._hears_first = 0  # So many beats it decides nothing by silence, for it stood still.

    def go_on(self, at_us: int, wall_us: int) -> None:
        """Go on where a controller has died; before anything else. wall_us: the host's clock."""
        past = self._past
        assert past is not None
        if past.unused:
            why = f"{past.unused}: the journal was read from further back"
            self._around.note(why, loud=True)
        if past.cut:
            self._around.note(f"the crash has damaged the journal: {past.cut}", loud=True)
        undone = list(self.accounts.undone)
        self.take(ControllerReturned(at_us=at_us, cut=bool(past.cut), wall_us=wall_us))
        for order in undone:
            self._around.save(order)
        for machine in self.accounts.away:
            self.absence.broke(machine, NOT_BACK, at_us)
        self._dial()
        self.reception.look(at_us)

    @property
    def alone(self) -> bool:
        """Nobody is left, and nobody may come back."""
        return not self.members and not self.accounts.away

    @property
    def unwritten(self) -> int:
        """Batches of rows that wait to be written."""
        return self._hearing.rows.waiting

    # --- requests ---

    def ask(self, event: REQUESTS) -> None:
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
        if isinstance(event, WorkerSaid | WorkersSaid | AgentSaid):
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
                if machine in self.members and machine not in self._catching_up:
                    self.members[machine].send(order)
            case Fence(machine=machine):
                self.absence.forget(machine)
                self.carrying.lost(machine)
                self._catching_up.pop(machine, None)
                link = self.members.pop(machine, None)
                if link is not None:
                    link.abort()
            case Answer():
                self._around.answer(effect)
            case Publish() | GiveUpCheckpoint() | FindCheckpoint():
                self._around.save(effect)
            case Release(machine=machine) if machine in self.members:
                self.members[machine].send(Shutdown())
            case Acquire() | Release():
                pass  # The engine reads them from the job, whenever that has changed.
            case Closed():
                pass  # It is in what has happened.
            case End():
                self.over = effect
                self.dismiss(Shutdown())
                self._around.end(effect)

    def dismiss(self, order: Shutdown) -> None:
        """Tell all machines to leave."""
        for link in self.members.values():
            link.send(order)

    def took(self, rows: Columns, at_us: int) -> None:
        """Ranks have told their own times; look whether one is slow."""
        if self.over is None:
            slow = partial(self.pace.take, self.job, rows.epoch, rows.each_took(), at_us)
            self._ask_policy("stragglers", slow)

    def beats(self, machine: MachineId, fact: Heartbeat, at_us: int) -> None:
        """An agent's loop runs."""
        self.anomalies.heard(machine, fact.free_bytes, fact.all_bytes, at_us)

    def lane_beat(self, link: Link, at_us: int) -> None:
        """An agent behind a relay runs."""
        if link.machine is not None and self.members.get(link.machine) is link:
            self.anomalies.alive(link.machine, at_us)

    def _look_who_may_fail(self, at_us: int) -> None:
        self._ask_policy("anomalies", partial(self.anomalies.look, self.job, at_us))

    def _ask_policy(self, policy: str, look: Callable[[], Sequence[EVENTS]]) -> None:
        """Take what a policy has found. One that raises is switched off: the job needs none."""
        if policy in self._off:
            return
        try:
            found = look()
        except Exception as error:  # noqa: BLE001
            self._off.add(policy)
            self._around.note(broken_text(policy, describe(error)), loud=True)
            return
        for event in found:
            self.take(event)

    # --- links ---

    def said(self, link: Link, fact: AgentFact, at_us: int) -> None:
        """A fact from a machine of the job; raises ProtocolError if it cannot be read."""
        machine = link.machine
        if machine is None or self.members.get(machine) is not link:
            return
        account = self.accounts.of.get(machine)
        if account is not None:
            self._hearing.said(machine, account, fact, at_us)
            if self._catching_up.get(machine, account.facts + 1) <= account.facts:
                self._caught_up(machine)

    def catches_up(self, machine: MachineId, said: int) -> None:
        """A machine is back. Its orders wait until all facts that it had kept are taken: they tell
        what has become of older orders.

        said  number of the newest of these facts
        """
        self._catching_up[machine] = said
        if said <= self.accounts.of[machine].facts:
            self._caught_up(machine)

    def _caught_up(self, machine: MachineId) -> None:
        del self._catching_up[machine]
        for order in self.accounts.of[machine].pending:
            self.members[machine].send(order)

    def broke(self, link: Link, why: str, at_us: int) -> None:
        """A connection has ended, whoever it was. The agent may come back over another."""
        machine = self._without(link)
        if machine is None:
            return
        if self.over is not None or machine not in self.job.machines:
            self.accounts.of.pop(machine, None)
            return
        self.accounts.of[machine].away = True
        carried = link.relay is not None
        self.absence.broke(machine, why, link.heard_us, carried=carried)
        self._dial()

    def speaks_nonsense(self, link: Link, why: str, at_us: int) -> None:
        """What came over a link was sent so and cannot be meant: its agent is not to be trusted."""
        machine = self._without(link)
        if machine is None:
            return
        self.absence.back(machine)
        self._give_up([Lost(machine=machine, why=why, heard_us=link.heard_us)], at_us)

    def without_link(self, machine: MachineId) -> None:
        """Its agent has another one now; or has none, and is over."""
        if machine in self.members:
            self._without(self.members[machine])

    def _without(self, link: Link) -> MachineId | None:
        machine = link.machine
        if machine is None or self.members.get(machine) is not link:
            return None
        del self.members[machine]
        self._catching_up.pop(machine, None)
        self.carrying.without_link(machine)
        link.abort()
        return machine

    # --- machines that are away ---

    def ended(self, machine: MachineId, why: str, at_us: int) -> None:
        """Whoever has started its agent has seen it end."""
        self.absence.ended(machine, why)
        self._give_up(self.absence.certain(), at_us)

    def dialled(self, machine: MachineId, what: Dialled, at_us: int) -> None:
        """What came of what the surroundings were asked for."""
        if self.absence.dialled(machine, what):
            self._give_up(self.absence.certain(), at_us)

    def found(self, witness: MachineId, fact: Found) -> None:
        """A machine says whom of those that are quiet it reaches."""
        self.absence.found(witness, fact.number, fact.machines)

    def _dial(self) -> None:
        for machine in self.absence.to_dial():
            self._around.dial(machine, self.job.machines[machine].vault)

    def _ask(self) -> None:
        members = self.members.items() if self.absence.quiet else ()
        fresh = {name for name, link in members if link.quiet_ticks <= FRESH_TICKS}
        witnesses = self.absence.witnesses(self.job, fresh)
        vaults = {name: self.job.machines[name].vault for name in self.absence.quiet}
        for witness in witnesses:
            self.members[witness].send(LookFor(number=self.absence.number, vaults=vaults))

    def _give_up(self, lost: list[Lost], at_us: int) -> None:
        """All that are known to be lost by now: one event."""
        for one in lost:
            self.without_link(one.machine)
            if self.over is not None:
                self.accounts.of.pop(one.machine, None)
        lost = [one for one in lost if one.machine in self.job.machines]
        if lost and self.over is None:
            self.take(MachinesLost(at_us=at_us, lost=lost))
            self.reception.lost(len(lost), at_us)

    def _look_who_is_away(self, at_us: int) -> None:
        for machine, after_s in self.absence.listen(self.members).items():
            self.tell_back(machine, after_s)
        self._dial()
        self._ask()
        for machine, others in self.absence.reached_by_others().items():
            if machine in self.job.machines:
                self.carrying.fetch(machine, others, self.job.machines[machine].vault)
        self._give_up(self.absence.lost(self.job), at_us)
        for text in self.absence.news(len(self.job.machines)):
            self._around.note(text, loud=True)

    def stood(self, at_us: int) -> None:
        """Hear first what machines have said meanwhile: this process stood still."""
        self._hears_first = 2
        if self.over is None:
            self._look_who_has_contact(at_us)

    def _look_who_has_contact(self, at_us: int) -> None:
        away = {*self.absence.away, *self._catching_up} & self.job.machines.keys()
        away = {*self.job.machines} if self._hears_first else away
        if away != self.job.away:
            lost, back = away - self.job.away, self.job.away - away
            self.take(ContactChanged(at_us=at_us, away=sorted(lost), back=sorted(back)))

    def tell_back(self, machine: MachineId, after_s: float) -> None:
        """Of one of which people were told that it is away."""
        if after_s:
            self._around.note(f"{machine} is back after {after_s:.1f} s", loud=True)

    def _leave_alone(self) -> None:
        """The job is over: who is away is not waited for long."""
        self._over_beats += 1
        if self._over_beats >= beats(self.spec.deadlines.spare_s):
            for machine in self.accounts.away:
                del self.accounts.of[machine]

    # --- time ---

    def beat(self, at_us: int) -> None:
        """To be called every `BEAT_S`; links have counted it."""
        self._beats += 1
        self._hears_first = max(0, self._hears_first - 1)
        if self.over is None:
            self._look_who_is_away(at_us)
        if self.over is None:
            self._look_who_has_contact(at_us)
            self._look_who_may_fail(at_us)
        else:
            self._leave_alone()
        self._tell_what_is_safe(at_us)
        self.carrying.beat(self.job, over=self.over is not None)
        self.reception.beat(at_us)
        if self.over is None and tick_due(self.job, self._ticked_us, at_us):
            self._ticked_us = at_us
            self.take(Tick(at_us=at_us))

    def _tell_what_is_safe(self, at_us: int) -> None:
        """All that was said until now is in the journal afterwards."""
        accounts = {machine: self.accounts.of.get(machine) for machine in self.members}
        known = {m: account for m, account in accounts.items() if account is not None}
        news = {m: account for m, account in known.items() if account.untold}
        safe = {account.incarnation: account.facts for account in news.values()}
        if not self._hearing.flush(at_us, safe):
            return
        for account in news.values():
            account.told = account.facts
        for machine in known if self._beats % beats(self.spec.deadlines.heard_s) == 0 else news:
            self.members[machine].send(Heard(facts=known[machine].told))

    def make_safe(self, incarnation: str, facts: int, at_us: int) -> bool:
        """All that was taken from an agent is in the journal afterwards."""
        return self._hearing.flush(at_us, {incarnation: facts})

    def write_rows(self) -> list[Unequal]:
        """Write all that have come to the journal; returns what contradicts it. Raises
        StateMismatch instead where the job wants exact numbers."""
        return self._hearing.rows.flush()
