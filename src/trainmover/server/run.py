# SPDX-License-Identifier: Apache-2.0
"""The controller's host: a loop, a clock and sockets around `control`, and the requests of the API.

Everything runs on one loop and nothing of it waits, so an event is decided on in the turn of the
loop in which its bytes arrived. What is no decision's business takes another way: committed rows go
to the journal in batches, output to the watchers.
"""

import asyncio
import gc
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from trainmover.controller.decide import decide
from trainmover.controller.effects import Answer, End, HostOrder
from trainmover.controller.events import (
    EVENTS,
    CordonRequested,
    DrainRequested,
    EngineNoticed,
    Granted,
    HealthRequested,
    KillRequested,
    MachinesDenied,
    MachinesGranted,
    MoveRequested,
    PlaceRequested,
    PlanSteered,
    RollRequested,
    StoreMoved,
    UncordonRequested,
)
from trainmover.controller.state import Job
from trainmover.errors import StateMismatch, UserError
from trainmover.ids import MachineId, Rank, Step
from trainmover.journal import Journal
from trainmover.journal.rows import CommittedRow
from trainmover.listeners.loop_listener import LoopListener
from trainmover.protocol import messages as m
from trainmover.protocol.deadlines import BEAT_S
from trainmover.protocol.lanes import LaneSession
from trainmover.protocol.messages import AgentFact, Hello, JobSpec, Return, Shutdown
from trainmover.server.answers import Answers
from trainmover.server.checkpoints.folder import CheckpointFolder
from trainmover.server.checkpoints.saving import Saving
from trainmover.server.clock import Clock
from trainmover.server.control import ENDED, Control
from trainmover.server.history.bookmarks import Bookmarks
from trainmover.server.history.incidents import Incidents
from trainmover.server.history.journal_disk import JournalDisk
from trainmover.server.history.past import Past
from trainmover.server.machines.absence import Dialled
from trainmover.server.machines.calls import Calls
from trainmover.server.machines.lanes import Lane, Trunk
from trainmover.server.machines.links import PURPOSE, MachineLink
from trainmover.server.machines.pulse import Pulse
from trainmover.server.measures import Measures
from trainmover.server.surroundings import ByTheWay, Decided, Link
from trainmover.server.view.engine import Queued, wants_json
from trainmover.server.view.news import News
from trainmover.server.view.notices import Notice
from trainmover.server.view.progress import Progress
from trainmover.server.view.protection import Unattached
from trainmover.server.view.snapshot import snapshot
from trainmover.server.view.telling import Telling
from trainmover.server.view.waiting import waiting_json
from trainmover.version import VERSION

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls

CHECKPOINT_BEATS = 50
GOODBYE_S_MORE = 2.0
GARBAGE_AFTER = 50_000
"""Values that may form cycles."""
STOP_GRACE_S = 10.0
"""For a last checkpoint of a job that somebody stops."""


class Server:
    """`ended` is done when the job is over and everybody has left: (exit status, text).

    It raises if the server itself failed. watch is called on the loop for every notice.
    past: of the journal, if it was taken over from a controller that died; at lost_us by the host's
    clock, if that is known.
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
        tls: "Tls | None" = None,
    ) -> None:
        self.spec = spec
        self.links: set[MachineLink | Lane] = set()
        self.pulse = Pulse(self.links, beat=self._beat)
        self._token = token
        self._past = past
        self._clock = Clock(newest_us=0 if past is None else past.at_us)
        since_us = self.now() - max(0, self._clock.wall() - lost_us) if lost_us else 0
        self.control = Control(spec, journal, self, at_us=self.now(), past=past, lost_us=since_us)
        known = past or Past(self.job)
        self._clock.stood = self.control.stood
        self._telling = Telling(journal, known, watch=watch, now=self.now, stop=self.stop)
        self._bookmarks = Bookmarks(journal, known.replayed)
        self.incidents = Incidents(journal, known.closed)
        self._unattached = Unattached()
        self._disk = JournalDisk(journal, note=self.note, stop=self.stop)
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[tuple[int, str]] = self._loop.create_future()
        self._listener = LoopListener(
            token,
            PURPOSE,
            partial(MachineLink, self),
            name=spec.run_id,
            tls=tls,
            turned_away=self.turned_away,
        )
        self._calls = Calls(tls, failed=self.failed)
        self._journal = journal
        self._shutdown_s = shutdown_s
        self._saving = Saving(
            checkpoints,
            spec,
            now=self.now,
            happened=self._saved,
            failed=self.failed,
            note=self.note,
        )
        self._answers = Answers(self.job.takeovers + (past is not None))
        self._closed = False
        self._beats = 0
        self._wants_version = 0
        self._queue: Mapping[MachineId, Queued] = {}

    # --- life ---

    async def start(self, listener: socket.socket) -> None:
        """Take in agents on `listener`, a bound socket that the server owns from now on."""

        await self._listener.open(listener)
        self.pulse.start()
        if self._past is not None:
            self.control.go_on(self.now(), self._clock.wall())
            if self.control.over is not None:
                self._wait_for_goodbyes()

    def stop(self, code: int, why: str, *, grace_s: float = 0.0) -> None:
        """End the job in order. grace_s: for which it may write one more checkpoint before."""
        at_us = self.now()
        until_us = at_us + round(grace_s * 1e6) if grace_s else 0
        self.control.stop(code, why, at_us, until_us=until_us)

    def store_moved(self, address: str) -> None:
        """Where groups meet is lost; they are to meet at `address`."""
        self.control.take(StoreMoved(at_us=self.now(), address=address))

    def kill_all(self) -> None:
        """End everybody at once; only after `stop`."""
        self.control.dismiss(Shutdown(kill=True))

    def failed(self, error: BaseException) -> None:
        """Something here raised: no decision can be trusted any more."""
        if not self.ended.done():
            self.ended.set_exception(error)
        self.kill_all()

    async def close(self) -> None:
        """Close every socket. The journal stays the caller's."""
        self._closed = True
        self.pulse.stop()
        self._listener.close()
        self._drop_everybody()
        self._calls.close()
        self.news.wake()
        await self._saving.close()

    @property
    def over(self) -> bool:
        """Whether the job has ended, agents may still be leaving; or the server was closed."""
        return self.control.over is not None or self._closed

    # --- what is asked ---

    def move(self, machine: str, reason: str = "") -> asyncio.Future[Answer]:
        """Ask for a move; answered when it is done, refused or cancelled."""
        request, answer = self._answers.expect()
        at_us = self.now()
        asked = MoveRequested(at_us=at_us, request=request, machine=machine, reason=reason)
        self.control.ask(asked)
        return answer

    def kill(self, machine: str) -> asyncio.Future[Answer]:
        """A drill: let a machine die."""
        request, answer = self._answers.expect()
        self.control.ask(KillRequested(at_us=self.now(), request=request, machine=machine))
        return answer

    def cordon(self, machine: str, reason: str = "") -> asyncio.Future[Answer]:
        """Let a machine take no ranks until it is uncordoned."""
        request, answer = self._answers.expect()
        at_us = self.now()
        asked = CordonRequested(at_us=at_us, request=request, machine=machine, reason=reason)
        self.control.ask(asked)
        return answer

    def uncordon(self, machine: str) -> asyncio.Future[Answer]:
        """Let it take ranks again."""
        request, answer = self._answers.expect()
        self.control.ask(UncordonRequested(at_us=self.now(), request=request, machine=machine))
        return answer

    def examine(self, machine: str) -> asyncio.Future[Answer]:
        """Measure what a machine can do that has no ranks; answered with what was found."""
        request, answer = self._answers.expect()
        self.control.ask(HealthRequested(at_us=self.now(), request=request, machine=machine))
        return answer

    def drain(
        self, machines: Sequence[str], reason: str = "", *, left_s: float | None = None
    ) -> asyncio.Future[Answer]:
        """Cordon them, then move their ranks, if they have any. left_s: then they are gone."""
        request, answer = self._answers.expect()
        at_us = self.now()
        until_us = 0 if left_s is None else max(at_us + round(left_s * 1e6), 1)
        self.control.ask(
            DrainRequested(
                at_us=at_us, request=request, machines=[*machines], reason=reason,
                until_us=until_us,
            )
        )  # fmt: skip
        return answer

    def roll(
        self, machines: Sequence[str], *, at_once: int = 1, hold: bool = False, reason: str = ""
    ) -> asyncio.Future[Answer]:
        """Have every machine give up its ranks once; answered when that begins. As the event."""
        request, answer = self._answers.expect()
        self.control.ask(
            RollRequested(
                at_us=self.now(), request=request, machines=[*machines], at_once=at_once,
                hold=hold, reason=reason,
            )
        )  # fmt: skip
        return answer

    def place(self, seats: Sequence[str], reason: str = "") -> asyncio.Future[Answer]:
        """Give slots to other machines; answered when that begins. seats: slot -> machine."""
        request, answer = self._answers.expect()
        self.control.ask(self._to_place(request, seats, reason))
        return answer

    def would_place(self, seats: Sequence[str]) -> Answer:
        """Return what `place` would answer now. Nothing is done, and nothing is journaled."""
        _, effects = decide(self.job, self._to_place("", seats, ""))
        return next(one for one in effects if isinstance(one, Answer))

    def _to_place(self, request: str, seats: Sequence[str], reason: str) -> PlaceRequested:
        return PlaceRequested(at_us=self.now(), request=request, seats=[*seats], reason=reason)

    def steer(self, *, going: bool, reason: str = "") -> asyncio.Future[Answer]:
        """Stop the newest plan, or let it go on."""
        request, answer = self._answers.expect()
        at_us = self.now()
        self.control.ask(PlanSteered(at_us=at_us, request=request, going=going, reason=reason))
        return answer

    async def wants(self, after: int, within_s: float) -> dict[str, Any]:
        """Return what the engine is to start and hold, once its version is another than `after`,
        or the job is over; as it is after `within_s` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while after == self._wants_version and not self.over:
                    await self.news.more.wait()
        return wants_json(self.job, self._wants_version, self.now(), over=self.over)

    def engine_answers(
        self,
        granted: list[Granted],
        denied: Sequence[tuple[int, str, str, float]],
        queue: Mapping[MachineId, Queued] | None,
    ) -> None:
        """The engine has started machines, or denied wants: (want, why, its words, seconds to the
        next try). queue: where the others stand; None: as before."""
        if queue is not None:
            self._queue = queue
        if granted:
            self.control.take(MachinesGranted(at_us=self.now(), machines=granted))
        for want, why, text, retry_s in denied:
            retry_ms, at_us = round(1000 * retry_s), self.now()
            self.control.take(
                MachinesDenied(at_us=at_us, want=want, why=why, text=text, retry_ms=retry_ms)
            )

    def engine_notices(self, machine: str, kind: str, left_s: float, text: str) -> None:
        """The engine says what becomes of a machine."""
        name, left_ms, at_us = MachineId(machine), round(1000 * left_s), self.now()
        self.control.take(
            EngineNoticed(at_us=at_us, machine=name, kind=kind, left_ms=left_ms, text=text)
        )

    def status(self) -> dict[str, Any]:
        """The job as a JSON value."""
        away = self.control.absence.away
        known = snapshot(
            self.job,
            self.progress,
            self.heard_us(),
            self.now(),
            away=away,
            waiting=self.waiting(),
        )
        return known | {
            "version": VERSION,
            "seq": self.news.newest,
            "journal": self._disk.status(),
            "relays": self._relays(),
        }

    def waiting(self) -> list[dict[str, Any]]:
        """Return what the job waits for, the most important first."""
        absence = self.control.absence
        awaited, why = absence.awaited
        still_us = round(absence.steps.still_beats * BEAT_S * 1e6)
        return waiting_json(self.job, awaited, why, still_us, self.now(), self._queue)

    def _relays(self) -> dict[MachineId, list[MachineId]]:
        """Machines whose trunk is there -> whose links go over it."""
        behind: dict[MachineId, list[MachineId]] = {
            name: [] for name in self.control.carrying.trunks
        }
        for machine, link in self.control.members.items():
            if link.relay is not None:
                behind.setdefault(link.relay, []).append(machine)
        return behind

    def heard_us(self) -> dict[MachineId, int]:
        """Machine -> when its last byte came."""
        heard = {machine: one.heard_us for machine, one in self.control.absence.quiet.items()}
        return heard | {machine: link.heard_us for machine, link in self.control.members.items()}

    @property
    def job(self) -> Job:
        """As it was decided last."""
        return self.control.job

    @property
    def progress(self) -> Progress:
        """How far the ranks are."""
        return self._telling.progress

    @property
    def measures(self) -> Measures:
        """What is counted."""
        return self._telling.measures

    @property
    def unwritten(self) -> int:
        """Facts and rows that were heard and are not in the journal yet."""
        return self.control.unwritten + self._journal.unwritten

    @property
    def news(self) -> News:
        """All that has happened."""
        return self._telling.news

    # --- links ---

    def said_hello(self, link: MachineLink, hello: Hello) -> None:
        """A peer that knows the token wants in."""
        self.control.reception.hello(link, hello, self.now())

    def said_return(self, link: Link, back: Return) -> None:
        """An agent has lost its link, and its workers run on."""
        self.control.reception.back(link, back, self.now())
        self._finish_if_alone()

    def said(self, link: Link, fact: AgentFact) -> None:
        """A fact from a machine of the job; raises ProtocolError if it cannot be read."""
        self.control.said(link, fact, self.now())

    def link_lost(self, link: MachineLink, why: str, *, nonsense: bool) -> None:
        """A connection has ended, whoever it was."""
        if link.trunk is not None:
            self.control.carrying.ended(link.trunk)
        elif nonsense:
            self.control.speaks_nonsense(link, why, self.now())
        else:
            self.control.broke(link, why, self.now())
        self._finish_if_alone()

    # --- lanes ---

    def said_trunk(self, link: MachineLink, fact: m.Trunk) -> None:
        """A machine of the job carries what others say, if it was asked to."""
        trunk = Trunk(fact.machine, self, link.write, link.abort)
        account = self.control.accounts.of.get(fact.machine)
        ours = account is not None and account.incarnation == fact.incarnation
        if ours and self.control.carrying.opened(trunk, fact.address):
            link.become_trunk(trunk)
        else:
            link.close()

    def soon(self, act: Callable[[], None]) -> None:
        """In the loop's next turn."""
        self._loop.call_soon(act)

    def ticket(self) -> str:
        """A fresh one that nobody can guess."""
        return secrets.token_hex(16)

    def session_for(self, machine: MachineId, relay: MachineId) -> LaneSession | None:
        """Of a lane; None: that machine was not sent to that relay."""
        ticket = self.control.carrying.ticket(machine, relay)
        return None if ticket is None else LaneSession(self._token, ticket, controller=True)

    def lane_opened(self, lane: Lane) -> None:
        """Its silence is counted from now on."""
        self.links.add(lane)

    def lane_beat(self, lane: Lane) -> None:
        """An agent behind a relay runs."""
        self.control.lane_beat(lane, self.now())

    def lane_ended(self, lane: Lane, why: str) -> None:
        """It is over, whoever has ended it."""
        self.links.discard(lane)
        self.control.broke(lane, why, self.now())
        self._finish_if_alone()

    def machine_ended(self, machine: MachineId, why: str) -> None:
        """Of one that may be waited for: it will not come back."""
        self.control.reception.gone(machine, why, self.now())
        self._finish_if_alone()

    # --- what the controller asks of its surroundings ---

    def happened(self, moment: Decided) -> None:
        """Tell people."""
        if moment.before.capacity is not moment.after.capacity:
            self._wants_version = moment.seq
        self.incidents.take(moment.effects, self.measures.since_us)
        self._telling.happened(moment)

    def told(self, machine: MachineId, fact: ByTheWay) -> None:
        """Tell people."""
        self._telling.told(machine, fact)

    def note(self, text: str, *, loud: bool = False) -> None:
        """A line for human eyes, in the journal and to whoever watches."""
        self._telling.note(text, loud=loud)

    def rows_after(self, rank: Rank, step: Step, most: int) -> list[CommittedRow]:
        """Return up to `most` committed steps of a rank behind `step`, in order."""
        first, last = Step(step + 1), Step(min(step + most, self.progress.step))
        return list(self._journal.rows_between([rank], first, last)) if first <= last else []

    def turned_away(self, why: str) -> None:
        """Somebody was not let in."""
        self._telling.turned_away(why)

    def answer(self, answer: Answer) -> None:
        """Who has asked has waited for this."""
        self._answers.give(answer)

    def save(self, order: HostOrder) -> None:
        """In a thread; what comes of it is an event."""
        self._saving.carry_out(order)

    def _saved(self, event: EVENTS) -> None:
        self.control.take(event)

    def dial(self, machine: MachineId, vault: str) -> None:
        """Look whether anybody answers there."""
        self._calls.look(vault, partial(self._dialled, machine))

    def _dialled(self, machine: MachineId, what: Dialled) -> None:
        if not self._closed:
            self.control.dialled(machine, what, self.now())
            self._finish_if_alone()

    def end(self, end: End) -> None:
        """The agents have a while to end their workers and go."""
        self._answers.refuse_all(ENDED)
        self._wait_for_goodbyes()

    def _wait_for_goodbyes(self) -> None:
        wait_s = self._shutdown_s + GOODBYE_S_MORE
        self._loop.call_later(wait_s, self._drop_everybody)
        self._finish_if_alone()

    def _drop_everybody(self) -> None:
        for link in list(self.links):
            link.abort()

    def _finish_if_alone(self) -> None:
        over = self.control.over
        if over is None or not self.control.alone or self.ended.done():
            return
        code, text = over.code, over.text
        try:
            for one in self.control.write_rows():
                self.note(f"not proved equal: rank {one.rank} in step {one.step}: {one.text}")
        except StateMismatch as error:
            code, text = 1, str(error)
        step = self._newest_step()
        if code and step:
            text = f"{text.rstrip()}\nThe last step reported as committed is {step}."
        if lacks := self._disk.last_words():
            text = f"{text.rstrip()}\n{lacks}".lstrip()
        self.ended.set_result((code, text))

    def _newest_step(self) -> int:
        """Known only at the end: commits are told in batches, and a checkpoint may be ahead."""
        written = self.job.checkpoint
        return max(self.progress.newest, 0 if written is None else written.step)

    # --- time ---

    def now(self) -> int:
        """The controller's time, whatever the host's clock is set to meanwhile."""
        return self._clock.now()

    def _beat(self) -> None:
        self._beats += 1
        self.control.beat(self.now())
        self._disk.beat()
        if unprotected := self._unattached.look(self.job, self.now()):
            self.note(unprotected, loud=True)
        self._finish_if_alone()
        if self._beats % CHECKPOINT_BEATS == 0 and self.job.change is None:
            if self.control.over is None:
                self._keep_bookmark()
            self._journal.checkpoint()

    def _keep_bookmark(self) -> None:
        closed = self.incidents.recent
        kept = self._bookmarks.keep(
            self.job, self.control.accounts, self.news.recent, closed.values()
        )
        self.news.forget(kept)
        if kept == self._journal.seq:
            self.incidents.kept()


def collect_seldom() -> None:
    """For a process that serves, and does little else. What agents say are many values and few
    cycles; a job of thousands of machines lives as long as the process, and to walk over it each
    time some hundred values more have come took a third of a controller's time."""
    gc.set_threshold(GARBAGE_AFTER)


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
