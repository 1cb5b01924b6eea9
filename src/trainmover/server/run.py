"""The controller's host: facts come in, are journaled, decided on, and orders go out.

    link --fact--> event --> journal --> decide --> effects --> links, API answers
                                  '--> watchers (screen, event stream)

Everything runs on one loop and nothing of it waits, so an event is decided on in the turn of the
loop in which its bytes arrived. What is no decision's business takes another way: committed rows go
to the journal in batches, output to the watchers.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

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
    MachineJoined,
    MachineLost,
    MoveRequested,
    StopRequested,
    StoreMoved,
    Tick,
    WorkerSaid,
)
from trainmover.controller.flapping import quarantine_s
from trainmover.controller.state import Job
from trainmover.errors import StateMismatch, UserError
from trainmover.ids import MachineId
from trainmover.journal import Journal
from trainmover.journal.journal import NOTE
from trainmover.protocol.crowd import AT_ONCE, QUEUE, Crowd
from trainmover.protocol.messages import (
    AgentFact,
    Heard,
    Hello,
    JobSpec,
    Refused,
    Resumed,
    Return,
    Shutdown,
    Welcome,
)
from trainmover.server.admission import quarantined_text, refusal, taken_back
from trainmover.server.answers import Answers
from trainmover.server.bookmarks import Bookmarks
from trainmover.server.checkpoint_folder import CheckpointFolder
from trainmover.server.hearing import Hearing
from trainmover.server.links import MachineLink, now_us
from trainmover.server.news import News
from trainmover.server.notices import Happened, Notice
from trainmover.server.past import Past
from trainmover.server.pulse import Pulse
from trainmover.server.returns import Returns
from trainmover.server.rows import Rows
from trainmover.server.saving import Saving
from trainmover.server.sentences import Sentence, sentence
from trainmover.server.snapshot import snapshot

CHECKPOINT_BEATS = 50
GOODBYE_S_MORE = 2.0
NOTE_US_MIN = 1_000_000
AWAY_RETRY_S = 1.0
STOP_GRACE_S = 10.0
"""For a last checkpoint of a job that somebody stops."""
_ENDED = "The job has ended: nothing was done."


class Server:
    """`ended` is done when the job is over and everybody has left: (exit status, text).

    It raises if the server itself failed. watch is called on the loop for every notice.
    past: of the journal, if it was taken over from a controller that died; at lost_us, if that is
    known.
    """

    def __init__(
        self,
        spec: JobSpec,
        token: bytes,
        journal: Journal,
        *,
        watch: Callable[[Notice], None] | None = None,
        shutdown_s: float = 5.0,
        checkpoints: CheckpointFolder | None = None,
        past: Past | None = None,
        lost_us: int = 0,
    ) -> None:
        self._began_us = now_us()
        self._past = past
        past = past or Past(Job(spec=spec))
        self.spec = spec
        self.job = past.job
        self.progress = past.progress
        self.links: set[MachineLink] = set()
        self.news = News(watch, past.happened, journal, past.replayed)
        self._bookmarks = Bookmarks(journal, past.happened, past.replayed)
        self.crowd: Crowd[MachineLink] = Crowd()
        self.pulse = Pulse(self.links, self.crowd, beat=self._beat, silent=self.link_lost)
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[tuple[int, str]] = self._loop.create_future()
        self._token = token
        self._journal = journal
        self._shutdown_s = shutdown_s
        self._saving = Saving(
            checkpoints, spec, now=self.now, happened=self.take, failed=self.failed
        )
        self._machines: dict[MachineId, MachineLink] = {}
        self._accounts = past.accounts
        self._returns = Returns(len(self._accounts.away), lost_us or self._began_us)
        self._hearing = Hearing(self.spec, Rows(journal), self.progress, self.news, self)
        self._answers = Answers(past.job.takeovers + (self._past is not None))
        self._listener: asyncio.Server | None = None
        self._over: End | None = past.over
        self._closed = False
        self._last_us = past.at_us
        self._ticked_us = now_us()
        self._noted_us = 0
        self._beats = 0

    # --- life ---

    async def start(self, listener: socket.socket) -> None:
        """Take in agents on `listener`, a bound socket that the server owns from now on."""
        self._listener = await self._loop.create_server(
            lambda: MachineLink(self._token, self), sock=listener, backlog=AT_ONCE
        )
        listener.listen(QUEUE)
        self.pulse.start()
        if self._past is not None:
            self._go_on(self._past)

    def _go_on(self, past: Past) -> None:
        """Where a controller has died."""
        if past.unused:
            self.note(f"{past.unused}: the journal was read from further back", loud=True)
        if past.cut:
            self.note(f"the crash has damaged the journal: {past.cut}", loud=True)
        undone = list(past.accounts.undone)
        self.take(ControllerReturned(at_us=self.now(), cut=bool(past.cut)))
        for order in undone:
            self._saving.carry_out(order)
        self._look_for_returns()
        if self._over is not None:
            self._wait_for_goodbyes()

    def stop(self, code: int, why: str, *, grace_s: float = 0.0) -> None:
        """End the job in order. grace_s: for which it may write one more checkpoint before."""
        if self._over is None:
            at_us = self.now()
            until_us = at_us + round(grace_s * 1e6) if grace_s else 0
            self.take(StopRequested(at_us=at_us, code=code, why=why, until_us=until_us))

    def store_moved(self, address: str) -> None:
        """Where groups meet is lost; they are to meet at `address`."""
        if self._over is None:
            self.take(StoreMoved(at_us=self.now(), address=address))

    def kill_all(self) -> None:
        """End everybody at once; only after `stop`."""
        self._to_all(Shutdown(kill=True))

    def failed(self, error: BaseException) -> None:
        """Something here raised: no decision can be trusted any more."""
        if not self.ended.done():
            self.ended.set_exception(error)
        self.kill_all()

    async def close(self) -> None:
        """Close every socket. The journal stays the caller's."""
        self._closed = True
        self.pulse.stop()
        if self._listener is not None:
            self._listener.close()
        for link in list(self.links):
            link.abort()
        self.news.wake()
        await self._saving.close()

    @property
    def over(self) -> bool:
        """Whether the job has ended, agents may still be leaving; or the server was closed."""
        return self._over is not None or self._closed

    # --- requests ---

    def move(self, machine: str) -> asyncio.Future[Answer]:
        """Ask for a move; answered when it is done, refused or cancelled."""
        request, answer = self._answers.expect()
        self._ask(MoveRequested(at_us=self.now(), request=request, machine=machine))
        return answer

    def kill(self, machine: str) -> asyncio.Future[Answer]:
        """A drill: let a machine die."""
        request, answer = self._answers.expect()
        self._ask(KillRequested(at_us=self.now(), request=request, machine=machine))
        return answer

    def status(self) -> dict[str, Any]:
        """The job as a JSON value."""
        heard = dict.fromkeys(self._accounts.away, self._past.at_us if self._past else 0)
        heard |= {machine: link.heard_us for machine, link in self._machines.items()}
        return snapshot(self.job, self.progress, heard, now_us())

    def _ask(self, event: MoveRequested | KillRequested) -> None:
        if self._over is None:
            self.take(event)
        else:
            self._answers.give(Answer(event.request, ok=False, text=_ENDED))

    # --- events and effects ---

    def take(self, event: EVENTS) -> None:
        """Journal, decide, carry out, tell; in this order."""
        if isinstance(event, WorkerSaid | AgentSaid):
            self._hearing.flush()  # Who knows that this fact was taken counts on those before it.
        if self._over is not None:
            return
        before = self.job
        seq = self._journal.append(event)
        self._accounts.journaled(event, away=False)
        self.job, effects = decide(before, event)
        for effect in effects:
            self._carry_out(effect)
        said = sentence(before, event, self.job)
        self._tell(seq, event.at_us, type(event).__name__, said, event, before)

    def _carry_out(self, effect: Effect) -> None:
        self._accounts.ordered(effect)
        match effect:
            case Send(machine=machine, order=order):
                if machine in self._machines:
                    self._machines[machine].send(order)
            case Fence(machine=machine):
                link = self._machines.pop(machine, None)
                if link is not None:
                    link.abort()
            case Answer():
                self._answers.give(effect)
            case Publish() | GiveUpCheckpoint() | FindCheckpoint():
                self._saving.carry_out(effect)
            case End():
                self._end(effect)

    def _end(self, effect: End) -> None:
        self._over = effect
        self._answers.refuse_all(_ENDED)
        self._to_all(Shutdown())
        self._wait_for_goodbyes()

    def _wait_for_goodbyes(self) -> None:
        wait_s = self._shutdown_s + GOODBYE_S_MORE
        self._loop.call_later(wait_s, self._drop_everybody)
        self._finish_if_alone()

    def _drop_everybody(self) -> None:
        for link in list(self.links):
            link.abort()

    def _finish_if_alone(self) -> None:
        gone = not self._machines and not self._accounts.away
        if self._over is not None and gone and not self.ended.done():
            code, text = self._over.code, self._over.text
            try:
                self._hearing.rows.flush()
            except StateMismatch as error:
                code, text = 1, str(error)
            step = self.progress.newest  # known only now: commits are told in batches
            if code and step:
                text = f"{text.rstrip()}\nThe last step reported as committed is {step}."
            self.ended.set_result((code, text))

    def _to_all(self, order: Shutdown) -> None:
        for link in self._machines.values():
            link.send(order)

    # --- links ---

    def said_hello(self, link: MachineLink, hello: Hello) -> None:
        """A peer that knows the token wants in."""
        present = {*self.job.machines, *self._machines}
        why_not = refusal(hello, self.spec, present, over=self._over is not None)
        if why_not:
            retry_s = AWAY_RETRY_S if hello.machine in self._accounts.away else None
            self._refuse(link, Refused(reason=why_not, retry_s=retry_s))
            return
        if wait_s := quarantine_s(self.job, hello.machine, hello.host, self.now()):
            reason = quarantined_text(hello.machine, wait_s)
            self._refuse(link, Refused(reason=reason, retry_s=wait_s))
            return
        link.machine = hello.machine
        self._machines[hello.machine] = link
        link.send(Welcome(spec=self.spec))
        self.take(
            MachineJoined(
                at_us=self.now(),
                machine=hello.machine,
                standby=hello.standby,
                vault=hello.vault,
                host=hello.host,
                incarnation=hello.incarnation,
                rack=hello.rack,
            )
        )

    def said_return(self, link: MachineLink, back: Return) -> None:
        """An agent has lost its link, and its workers run on."""
        machine = back.machine
        account = self._accounts.of.get(machine)
        ours = account is not None and account.incarnation == back.incarnation
        if ours and machine in self._machines:
            self.link_lost(self._machines[machine], "its agent has lost the link")  # Knows first.
            account = None
        rest = taken_back(back, account, self.job.epoch)
        if self._over is not None and machine not in self._machines:
            rest = [Shutdown()]
        if isinstance(rest, Refused):
            self._refuse(link, rest)
            self.machine_ended(machine, "its agent is not the one that the journal knows")
            return
        link.machine = machine
        self._machines[machine] = link
        if not back.heard:
            link.send(Welcome(spec=self.spec))
        if account is not None:
            account.back(back.heard)
            link.send(Resumed(facts=account.facts))
        for order in rest:
            link.send(order)
        self._look_for_returns()

    def _refuse(self, link: MachineLink, refused: Refused) -> None:
        link.send(refused)
        link.close()
        self.turned_away(refused.reason.split("\n")[0])

    def _look_for_returns(self) -> None:
        """Tell when all that were in the job are back, or are no longer waited for."""
        text = self._returns.sentence(len(self._accounts.away), self.now())
        if self._past is not None and self._over is None and text:
            self.note(text, loud=True)

    def machine_ended(self, machine: MachineId, why: str) -> None:
        """Of one that may be waited for: it will not come back."""
        if machine in self._accounts.away:
            self._returns.ended()
            self._give_up(machine, why)
            self._look_for_returns()
            self._finish_if_alone()

    def _give_up_the_away(self) -> None:
        for machine in self._accounts.away:
            self._give_up(machine, "it did not come back to the controller, which was restarted")
        self._finish_if_alone()

    def _give_up(self, machine: MachineId, why: str) -> None:
        if self._over is not None:
            del self._accounts.of[machine]
            return
        heard_us = self._began_us
        self.take(MachineLost(at_us=self.now(), machine=machine, why=why, heard_us=heard_us))

    def said(self, link: MachineLink, fact: AgentFact) -> None:
        """A fact from a machine of the job; raises ProtocolError if it cannot be read."""
        machine = link.machine
        if machine is None or self._machines.get(machine) is not link:
            return
        account = self._accounts.of.get(machine)
        if account is not None:
            self._hearing.said(machine, account, fact)

    def link_lost(self, link: MachineLink, why: str) -> None:
        """A connection has ended or is silent, whoever it was."""
        machine = link.machine
        if machine is None or self._machines.get(machine) is not link:
            return
        del self._machines[machine]
        link.abort()
        if machine in self.job.machines:
            self.take(
                MachineLost(at_us=self.now(), machine=machine, why=why, heard_us=link.heard_us)
            )
        self._finish_if_alone()

    def turned_away(self, why: str) -> None:
        """A line in the event stream, at most one a second, whoever knocks how often."""
        at_us = self.now()
        if at_us - self._noted_us < NOTE_US_MIN:
            return
        self._noted_us = at_us
        self.note(why)

    # --- time ---

    def now(self) -> int:
        """The clock, never running backwards."""
        self._last_us = max(self._last_us, now_us())
        return self._last_us

    def _beat(self) -> None:
        self._beats += 1
        self._tell_what_is_safe()
        if self._accounts.away and self._returns.beat():
            self._look_for_returns()
            self._give_up_the_away()
        if self._over is None and tick_due(self.job, self._ticked_us, self.now()):
            self._ticked_us = self.now()
            self.take(Tick(at_us=self._ticked_us))
        if self._beats % CHECKPOINT_BEATS == 0 and self.job.change is None:
            if self._over is None:
                self._bookmarks.keep(self.job, self._accounts)
            self._journal.checkpoint()

    def _tell_what_is_safe(self) -> None:
        """All that was said until now is in the journal afterwards."""
        accounts = {machine: self._accounts.of.get(machine) for machine in self._machines}
        news = {m: account for m, account in accounts.items() if account and account.untold}
        if self._hearing.flush({account.incarnation: account.facts for account in news.values()}):
            for machine, account in news.items():
                account.told = account.facts
                self._machines[machine].send(Heard(facts=account.facts))

    # --- telling ---

    def note(self, text: str, *, loud: bool = False) -> None:
        """A line for human eyes, in the journal and to whoever watches."""
        at_us = self.now()
        seq = self._journal.note(at_us, text)
        self._tell(seq, at_us, NOTE, Sentence(text, loud=loud), None, self.job)

    def _tell(
        self,
        seq: int,
        at_us: int,
        kind: str,
        said: Sentence,
        event: EVENTS | None,
        before: Job,
    ) -> None:
        self.news.add(Happened(seq, at_us, kind, said.text, said.loud, event, before, self.job))


def bind(address: str, what: str) -> socket.socket:
    """A listening socket on host:port (port 0: any). Raises UserError if the port is taken."""
    host, _, port = address.rpartition(":")
    try:
        return socket.create_server((host, int(port)), backlog=128)
    except OSError as error:
        raise UserError(
            f"{what} cannot listen on {address}: {os.strerror(error.errno or 0)}.",
            means="Nothing was started.",
            do="Take another port, or 0 for any free one.",
        ) from error
