# SPDX-License-Identifier: Apache-2.0
"""Timeline of all processes of a job, from the journal's events. Pure.

The controller's time is the one there is: an event stands where the controller has heard of it, an
order where it was given, and the work between the two is a span of the process that was told. Only
committed steps are dated by the machines themselves; their clocks are set by what cannot be
otherwise: no commit comes before the order that began it, or after it was heard of (`Clocks`).
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainmover.controller.decide import decide
from trainmover.controller.effects import Effect, Send
from trainmover.controller.events import EVENTS, AgentSaid, MachinesLost, WorkerSaid, WorkersSaid
from trainmover.controller.state import Incident, Job, Outcome
from trainmover.ids import Epoch, MachineId
from trainmover.journal import CommittedRow
from trainmover.protocol import messages as m
from trainmover.server.view.sentences import sentence

CONTROLLER = "controller"
INCIDENTS, ORDERS, STATE = "incidents", "orders and events", "machine"
ORDER_US = 200
"""For which an order is drawn: it is a moment."""

ANSWERED: dict[type[m.Order], tuple[str, tuple[type[m.WorkerFact], ...]]] = {
    m.StartWorkers: ("start process", (m.WorkerUp,)),
    m.RunRank: ("first steps", (m.Recorded,)),
    m.WarmUp: ("warm up", (m.Warm, m.SandboxFailed)),
    m.Hold: ("warm up to a first step", (m.Held, m.SandboxFailed)),
    m.Bind: ("bind", (m.Parked, m.SandboxFailed)),
    m.Prepare: ("prepare", (m.Prepared,)),
    m.PauseAt: ("pause", (m.AtBoundary,)),
    m.Interrupt: ("drain", (m.Position,)),
    m.Verdict: ("verdict", (m.AtBoundary,)),
    m.Switch: ("switchover", (m.Switched,)),
    m.Go: ("first step", (m.Committed,)),
    m.Leave: ("leave", (m.Left,)),
    m.WriteCheckpoint: ("write checkpoint", (m.Wrote,)),
}
"""An order to workers, what they do on it, and what they say when it is done."""


_TOLD: tuple[str, ...] = (
    "rank",
    "epoch",
    "step",
    "committed",
    "gate",
    "bind_ms",
    "warm_ms",
    "run_ms",
    "reason",
    "links_opened",
    "links_kept",
    "gap_us",
)
_TOLD_AS = {"epoch": "membership", "gate": "at the commit of"}
RUNS = (m.StartWorkers, m.RunRank, m.WarmUp, m.Hold, m.Bind)
"""The whole process is at it: what it did before is over."""


@dataclass(frozen=True)
class Track:
    """Place where a span is drawn: process (the controller or a machine), and a lane of it."""

    process: str
    lane: str


@dataclass(frozen=True)
class Span:
    """said: what is known of it besides."""

    track: Track
    name: str
    from_us: int
    to_us: int
    said: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Moment:
    """Something that takes no time."""

    track: Track
    name: str
    at_us: int


@dataclass(frozen=True)
class Flow:
    """Arrow from an order, by the controller, to the end of what was done on it."""

    from_us: int
    track: Track
    to_us: int


@dataclass
class Clocks:
    """How much later it is here than a host's clock says: between what it cannot be less and more.

    >>> clocks = Clocks()
    >>> clocks.not_before("h", at_host=1_000, here=5_000)
    >>> clocks.not_after("h", at_host=2_000, here=9_000)
    >>> clocks.behind_us("h"), clocks.known("h")
    (4000, (4000, 7000))
    """

    least: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)

    def not_before(self, host: str, *, at_host: int, here: int) -> None:
        self.least[host] = max(self.least.get(host, here - at_host), here - at_host)

    def not_after(self, host: str, *, at_host: int, here: int) -> None:
        self.most[host] = min(self.most.get(host, here - at_host), here - at_host)

    def known(self, host: str) -> tuple[int, int] | None:
        if host not in self.least or host not in self.most:
            return None
        return self.least[host], self.most[host]

    def behind_us(self, host: str) -> int:
        """Return 0 if the clocks may agree; else the least that makes sense of what was said."""
        known = self.known(host)
        return 0 if known is None else min(max(0, known[0]), max(known))


@dataclass(frozen=True)
class _Pending:
    order: m.Order
    at_us: int


class Timeline:
    """Timeline of a whole run, from `begun_us` to `end_us`.

    memberships  since when which machine has had the ranks of which slot
    closed_us    incident -> when it was over
    """

    def __init__(self, spec: m.JobSpec) -> None:
        self.job = Job(spec=spec)
        self._known: dict[int, Incident] = {}
        self.spans: list[Span] = []
        self.moments: list[Moment] = []
        self.flows: list[Flow] = []
        self.clocks = Clocks()
        self.hosts: dict[str, str] = {}
        self.memberships: list[tuple[int, tuple[MachineId, ...]]] = []
        self.seats: dict[Epoch, tuple[MachineId, ...]] = {}
        self.closed_us: dict[int, int] = {}
        self.begun_us = self.end_us = 0
        self._pending: dict[tuple[str, int], list[_Pending]] = {}
        self._since: dict[str, tuple[str, int]] = {}
        self._went: dict[str, int] = {}
        self._given: list[Span] = []

    @classmethod
    def of(cls, spec: m.JobSpec, events: Iterable[EVENTS]) -> "Timeline":
        line = cls(spec)
        for event in events:
            line._take(event)
        line._close()
        return line

    @property
    def incidents(self) -> list[Incident]:
        """Return all incidents of the run, also those that have left the job."""
        return [*self._known.values()]

    def stretch(self, incident: Incident) -> tuple[int, int]:
        """Return the time from an incident's first sign to its end."""
        end_us = self.closed_us.get(incident.number, self.end_us)
        return min(incident.marks.values(), default=end_us), end_us

    def host_of(self, slot: int, epoch: Epoch) -> str:
        """Return the host whose clock has dated what was committed there."""
        seats = self.seats.get(epoch, ())
        return self.hosts.get(seats[slot], "") if slot < len(seats) else ""

    # --- events ---

    def _take(self, event: EVENTS) -> None:
        before, at_us = self.job, event.at_us
        self.job, effects = decide(before, event)
        self.begun_us = self.begun_us or at_us
        self.end_us = max(self.end_us, at_us)
        match event:
            case WorkerSaid():
                self._heard(event.machine, event.local_rank, event.fact, at_us)
            case WorkersSaid():
                for fact in event.facts:
                    local_rank = fact.rank % self.job.spec.nproc
                    self._heard(event.machine, local_rank, fact, at_us)
            case AgentSaid(fact=m.WorkerExited() as fact):
                self._worker_gone(event.machine, fact, at_us)
            case MachinesLost():
                for lost in event.lost:
                    self._machine_gone(lost.machine, at_us)
        self._orders(effects, at_us)
        self._states(before, at_us)
        self._incidents(before, at_us)
        if self.job.epoch != before.epoch:
            self.memberships.append((at_us, self.job.seats))
            self.seats[self.job.epoch] = self.job.seats
        if text := sentence(before, event, self.job).text:
            self.moments.append(Moment(Track(CONTROLLER, ORDERS), text, at_us))

    def _orders(self, effects: tuple[Effect, ...], at_us: int) -> None:
        given: dict[str, list[str]] = {}
        for effect in effects:
            if isinstance(effect, Send):
                given.setdefault(type(effect.order).__name__, []).append(effect.machine)
                self._ordered(effect.machine, effect.order, at_us)
        if given:
            said = {name: ", ".join(machines) for name, machines in given.items()}
            track = Track(CONTROLLER, ORDERS)
            self._given.append(Span(track, ", ".join(given), at_us, at_us, said))

    def _ordered(self, machine: MachineId, order: m.Order, at_us: int) -> None:
        if isinstance(order, m.Go):
            self._went[machine] = at_us
        if type(order) not in ANSWERED and not isinstance(order, m.Discard):
            return
        for local in range(self.job.spec.nproc):
            waiting = self._pending.setdefault((machine, local), [])
            for old in [one for one in waiting if _ends(one.order, order)]:
                waiting.remove(old)
                if isinstance(old.order, RUNS):  # Others are given to all, and meant for some.
                    self._span(machine, local, old, at_us, {"given up": True})
            if type(order) in ANSWERED:
                waiting.append(_Pending(order, at_us))

    def _heard(self, machine: MachineId, local: int, fact: m.WorkerFact, at_us: int) -> None:
        waiting = self._pending.get((machine, local), [])
        if isinstance(fact, m.Committed):
            self._set_clock(machine, fact, at_us)
            if not fact.first:
                return
        elif isinstance(fact, m.Loaded):
            took_us = round(fact.certificate.state_ms * 1000)
            said = {"bytes": fact.certificate.bytes, "equal": fact.certificate.equal}
            self.spans.append(Span(_lane(machine, local), "state", at_us - took_us, at_us, said))
        elif isinstance(fact, m.Interrupted):
            self.moments.append(Moment(_lane(machine, local), "link broken", at_us))
        for old in [one for one in waiting if _answers(fact, one.order)]:
            waiting.remove(old)
            self._span(machine, local, old, at_us, _of(fact))
            self.flows.append(Flow(old.at_us, _lane(machine, local), at_us))

    def _set_clock(self, machine: MachineId, fact: m.Committed, at_us: int) -> None:
        """Set the clock by who stayed: a joiner tells at first what it has from a record."""
        if fact.gap_us is None or not fact.rows or machine not in self._went:
            return
        host, committed_us = self.hosts.get(machine, ""), fact.rows[0].at_us
        self.clocks.not_after(host, at_host=committed_us, here=at_us)
        self.clocks.not_before(host, at_host=committed_us, here=self._went[machine])

    def _span(
        self, machine: MachineId, local: int, old: _Pending, at_us: int, said: Mapping[str, Any]
    ) -> None:
        name = ANSWERED[type(old.order)][0]
        if at_us > old.at_us:
            self.spans.append(Span(_lane(machine, local), name, old.at_us, at_us, said))

    def _worker_gone(self, machine: MachineId, fact: m.WorkerExited, at_us: int) -> None:
        lane = _lane(machine, fact.local_rank)
        self.moments.append(Moment(lane, f"process ended ({fact.code})", at_us))
        for old in self._pending.pop((machine, fact.local_rank), []):
            self._span(machine, fact.local_rank, old, at_us, {"given up": True})

    def _machine_gone(self, machine: MachineId, at_us: int) -> None:
        self.moments.append(Moment(Track(machine, STATE), "lost", at_us))
        for key in [key for key in self._pending if key[0] == machine]:
            for old in self._pending.pop(key):
                self._span(machine, key[1], old, at_us, {"given up": True})

    def _states(self, before: Job, at_us: int) -> None:
        if before.machines is self.job.machines:
            return
        for name in [*before.machines, *self.job.machines]:
            machine = self.job.machines.get(name)
            now = "" if machine is None else str(machine.state)
            was, since = self._since.get(name, ("", at_us))
            if machine is not None:
                self.hosts[name] = machine.host
            if was == now:
                continue
            if was:
                self.spans.append(Span(Track(name, STATE), was, since, at_us))
            self._since[name] = (now, at_us)

    def _incidents(self, before: Job, at_us: int) -> None:
        if before.incidents is self.job.incidents:
            return
        self._known |= {one.number: one for one in self.job.incidents}
        known = {one.number: one for one in before.incidents}
        for new in self.job.incidents:
            old = known.get(new.number, new)
            if old is not new and old.outcome is Outcome.OPEN is not new.outcome:
                self.closed_us[new.number] = at_us

    def _close(self) -> None:
        """Have what has no end yet last until the journal's."""
        for name, (state, since) in self._since.items():
            if state:
                self.spans.append(Span(Track(name, STATE), state, since, self.end_us))
        for (machine, local), waiting in self._pending.items():
            for old in waiting:
                self._span(MachineId(machine), local, old, self.end_us, {"not ended": True})
        for incident in self.incidents:
            self.spans += self._phases(incident)
        self.spans += _not_crossing(self._given)

    def _phases(self, incident: Incident) -> list[Span]:
        begun_us, end_us = self.stretch(incident)
        who = f"{incident.machine or 'link'} -> {incident.joiner or '-'}"
        said: dict[str, Any] = {"cause": incident.cause, "outcome": str(incident.outcome)}
        said |= {"downtime_ms": incident.downtime_ms, "step": incident.step}
        track = Track(CONTROLLER, INCIDENTS)
        name = f"#{incident.number} {incident.kind} {who}"
        spans = [Span(track, name, begun_us, max(end_us, begun_us + 1), said)]
        at_us = begun_us
        for mark, then_us in sorted(incident.marks.items(), key=lambda mark: mark[1])[1:]:
            if then_us > at_us:
                spans.append(Span(track, mark.replace("_", " "), at_us, then_us))
            at_us = then_us
        return spans


def _not_crossing(orders: list[Span]) -> Iterable[Span]:
    """Moments as short spans, each over when the next begins."""
    for one, after in zip(orders, [*orders[1:], None], strict=True):
        room = (
            ORDER_US
            if after is None or after.from_us == one.from_us
            else (after.from_us - one.from_us)
        )
        yield replace(one, to_us=one.from_us + min(room, ORDER_US))


def _lane(machine: MachineId, local: int) -> Track:
    return Track(machine, f"worker {local}")


def _ends(old: m.Order, new: m.Order) -> bool:
    """Tell whether what was begun on `old` is not answered any more once `new` is given."""
    if isinstance(old, m.WriteCheckpoint) or isinstance(new, m.WriteCheckpoint):
        return isinstance(new, m.StartWorkers) or type(old) is type(new)
    if isinstance(new, m.Discard):
        return _epoch(old) == new.epoch
    newer = 0 < _epoch(old) < _epoch(new)
    return newer or isinstance(new, (*RUNS, m.Leave)) or type(old) is type(new)


def _answers(fact: m.WorkerFact, order: m.Order) -> bool:
    same = not _epoch(order) or not _epoch(fact) or _epoch(order) == _epoch(fact)
    return same and type(fact) in ANSWERED[type(order)][1]


def _epoch(message: m.Order | m.WorkerFact) -> int:
    return getattr(message, "epoch", 0)


def _of(fact: m.WorkerFact) -> dict[str, Any]:
    """Return what a fact tells besides that it is so."""
    known = {_TOLD_AS.get(name, name): getattr(fact, name, None) for name in _TOLD}
    return {name: value for name, value in known.items() if value not in (None, "")}


def step_spans(line: Timeline, rows: Iterable[CommittedRow]) -> Iterable[Span]:
    """Yield spans of committed steps, by rank and step. One begins with the commit before it, or
    with the membership in which it was made."""
    since = [at for at, _ in line.memberships]
    before = (-1, 0, 0)
    for row in rows:
        rank, step = row.rank, row.step
        slot, local = divmod(rank, line.job.spec.nproc)
        at_us = row.at_us + line.clocks.behind_us(line.host_of(slot, row.epoch))
        membership = bisect_right(since, at_us) - 1
        if membership >= 0:
            begun_us, seats = line.memberships[membership]
            from_us = max(before[2], begun_us)
            if before[:2] == (rank, step - 1) and from_us < at_us:
                track = Track(seats[slot], f"steps of worker {local}")
                yield Span(track, f"step {step}", from_us, at_us, {"rank": rank})
        before = (rank, step, at_us)
