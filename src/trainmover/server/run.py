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
from trainmover.controller.effects import Answer, Effect, End, Fence, Send
from trainmover.controller.events import (
    EVENTS,
    AgentSaid,
    KillRequested,
    MachineJoined,
    MachineLost,
    MoveRequested,
    StopRequested,
    Tick,
    WorkerSaid,
)
from trainmover.controller.state import Job
from trainmover.errors import StateMismatch, UserError
from trainmover.ids import MachineId
from trainmover.journal import Journal
from trainmover.journal.journal import NOTE
from trainmover.protocol.messages import (
    AgentFact,
    Committed,
    FromWorker,
    Hello,
    JobSpec,
    Output,
    Refused,
    Shutdown,
    VaultHeld,
    Welcome,
    WorkerExited,
    WorkerFact,
    decode_worker_fact,
)
from trainmover.server.admission import refusal
from trainmover.server.answers import Answers
from trainmover.server.links import MachineLink, now_us
from trainmover.server.news import News
from trainmover.server.notices import Happened, Notice, Printed, Stepped
from trainmover.server.progress import Progress
from trainmover.server.pulse import Pulse
from trainmover.server.rows import Rows
from trainmover.server.sentences import Sentence, sentence
from trainmover.server.snapshot import snapshot

CHECKPOINT_BEATS = 50
GOODBYE_S_MORE = 2.0
NOTE_US_MIN = 1_000_000
_ENDED = "The job has ended: nothing was done."


class Server:
    """`ended` is done when the job is over and everybody has left: (exit status, text).

    It raises if the server itself failed. watch is called on the loop for every notice.
    """

    def __init__(
        self,
        spec: JobSpec,
        token: bytes,
        journal: Journal,
        *,
        watch: Callable[[Notice], None] | None = None,
        shutdown_s: float = 5.0,
    ) -> None:
        self.spec = spec
        self.job = Job(spec=spec)
        self.progress = Progress()
        self.links: set[MachineLink] = set()
        self.news = News(watch)
        self.pulse = Pulse(self.links, beat=self._beat, silent=self.link_lost)
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[tuple[int, str]] = self._loop.create_future()
        self._token = token
        self._journal = journal
        self._rows = Rows(journal)
        self._shutdown_s = shutdown_s
        self._machines: dict[MachineId, MachineLink] = {}
        self._answers = Answers()
        self._listener: asyncio.Server | None = None
        self._over: End | None = None
        self._closed = False
        self._last_us = 0
        self._ticked_us = now_us()
        self._noted_us = 0
        self._beats = 0

    # --- life ---

    async def start(self, listener: socket.socket) -> None:
        """Take in agents on `listener`, a bound socket that the server owns from now on."""
        self._listener = await self._loop.create_server(
            lambda: MachineLink(self._token, self), sock=listener
        )
        self.pulse.start()

    def stop(self, code: int, why: str) -> None:
        """End the job in order."""
        if self._over is None:
            self.take(StopRequested(at_us=self._now(), code=code, why=why))

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

    @property
    def over(self) -> bool:
        """Whether the job has ended, agents may still be leaving; or the server was closed."""
        return self._over is not None or self._closed

    # --- requests ---

    def move(self, machine: str) -> asyncio.Future[Answer]:
        """Ask for a move; answered when it is done, refused or cancelled."""
        request, answer = self._answers.expect()
        self._ask(MoveRequested(at_us=self._now(), request=request, machine=machine))
        return answer

    def kill(self, machine: str) -> asyncio.Future[Answer]:
        """A drill: let a machine die."""
        request, answer = self._answers.expect()
        self._ask(KillRequested(at_us=self._now(), request=request, machine=machine))
        return answer

    def status(self) -> dict[str, Any]:
        """The job as a JSON value."""
        heard = {machine: link.heard_us for machine, link in self._machines.items()}
        return snapshot(self.job, self.progress, heard, now_us())

    def _ask(self, event: MoveRequested | KillRequested) -> None:
        if self._over is None:
            self.take(event)
        else:
            self._answers.give(Answer(event.request, ok=False, text=_ENDED))

    # --- events and effects ---

    def take(self, event: EVENTS) -> None:
        """Journal, decide, carry out, tell; in this order."""
        if self._over is not None:
            return
        before = self.job
        seq = self._journal.append(event)
        self.job, effects = decide(before, event)
        for effect in effects:
            self._carry_out(effect)
        said = sentence(before, event, self.job)
        self._tell(seq, event.at_us, type(event).__name__, said, event, before)

    def _carry_out(self, effect: Effect) -> None:
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
            case End():
                self._end(effect)

    def _end(self, effect: End) -> None:
        self._over = effect
        self._answers.refuse_all(_ENDED)
        self._to_all(Shutdown())
        wait_s = self._shutdown_s + GOODBYE_S_MORE
        self._loop.call_later(wait_s, self._drop_everybody)
        self._finish_if_alone()

    def _drop_everybody(self) -> None:
        for link in list(self.links):
            link.abort()

    def _finish_if_alone(self) -> None:
        if self._over is not None and not self._machines and not self.ended.done():
            code, text = self._over.code, self._over.text
            try:
                self._rows.flush()
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
            link.send(Refused(reason=why_not))
            link.close()
            self.turned_away(why_not.split("\n")[0])
            return
        link.machine = hello.machine
        self._machines[hello.machine] = link
        link.send(Welcome(spec=self.spec))
        self.take(
            MachineJoined(
                at_us=self._now(),
                machine=hello.machine,
                standby=hello.standby,
                vault=hello.vault,
                host=hello.host,
            )
        )

    def said(self, link: MachineLink, fact: AgentFact) -> None:
        """A fact from a machine of the job; raises ProtocolError if it cannot be read."""
        machine = link.machine
        if machine is None or self._machines.get(machine) is not link:
            return
        match fact:
            case FromWorker(local_rank=local_rank, payload=payload):
                self._worker_said(machine, local_rank, decode_worker_fact(payload))
            case WorkerExited() | VaultHeld():
                self.take(AgentSaid(at_us=self._now(), machine=machine, fact=fact))
            case Output():
                self.news.tell(Printed(fact.rank, fact.stream, fact.text))
            case _:
                pass  # a heartbeat has done its work by being bytes

    def link_lost(self, link: MachineLink, why: str) -> None:
        """A connection has ended or is silent, whoever it was."""
        machine = link.machine
        if machine is None or self._machines.get(machine) is not link:
            return
        del self._machines[machine]
        link.abort()
        if machine in self.job.machines:
            self.take(
                MachineLost(at_us=self._now(), machine=machine, why=why, heard_us=link.heard_us)
            )
        self._finish_if_alone()

    def turned_away(self, why: str) -> None:
        """A line in the event stream, at most one a second, whoever knocks how often."""
        at_us = self._now()
        if at_us - self._noted_us < NOTE_US_MIN:
            return
        self._noted_us = at_us
        self.note(why)

    def _worker_said(self, machine: MachineId, local_rank: int, fact: WorkerFact) -> None:
        if local_rank not in range(self.spec.nproc):
            return
        if isinstance(fact, Committed):
            self.progress.take(fact)
            first = self._rows.take(fact)
            self.news.tell(Stepped(fact.rank, fact.epoch, fact.rows))
            if first is None:
                return
            fact = first
        self.take(
            WorkerSaid(
                at_us=self._now(),
                machine=machine,
                local_rank=local_rank,
                fact=fact,  # type: ignore[arg-type]
            )
        )

    # --- time ---

    def _now(self) -> int:
        """The clock, never running backwards."""
        self._last_us = max(self._last_us, now_us())
        return self._last_us

    def _beat(self) -> None:
        self._beats += 1
        try:
            self._rows.flush()
        except StateMismatch as error:
            self.stop(1, str(error))
        if self._over is None and tick_due(self.job, self._ticked_us, self._now()):
            self._ticked_us = self._now()
            self.take(Tick(at_us=self._ticked_us))
        if self._beats % CHECKPOINT_BEATS == 0 and self.job.change is None:
            self._journal.checkpoint()

    # --- telling ---

    def note(self, text: str, *, loud: bool = False) -> None:
        """A line for human eyes, in the journal and to whoever watches."""
        at_us = self._now()
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
