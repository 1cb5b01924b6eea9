# SPDX-License-Identifier: Apache-2.0
"""What is around a controller in this world. The controller itself is the one that runs jobs.

    link --fact--> server.control --> journal, decide --> orders --> link, answers, checkpoints

It stops at any moment (`die`); what it had written is on the disk, and `took_over` makes another of
that, as the server does.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import (
    Answer,
    End,
    Fence,
    FindCheckpoint,
    GiveUpCheckpoint,
    HostOrder,
    Publish,
)
from trainmover.controller.events import (
    EVENTS,
    CheckpointFailed,
    CheckpointFound,
    CheckpointPublished,
    MachineJoined,
)
from trainmover.controller.state import Job
from trainmover.ids import MachineId, Step
from trainmover.protocol import messages as m
from trainmover.protocol.deadlines import ANSWER_S, BEAT_S
from trainmover.protocol.lanes import LaneSession
from trainmover.server.clock import Clock
from trainmover.server.control import Control
from trainmover.server.machines.absence import LINK_ENDED, Dialled
from trainmover.server.machines.lanes import Lane, Trunk
from trainmover.server.surroundings import ByTheWay, Decided
from trainmover.server.surroundings import Link as AnyLink
from trainmover.simulator.happenings import Ended, Fenced, Replayed, Told
from trainmover.simulator.places.network import CONTROLLER, Link
from trainmover.simulator.places.uplink import TOKEN
from trainmover.simulator.ranks.snapshots import file_key

if TYPE_CHECKING:
    from trainmover.server.history.past import Past
    from trainmover.simulator.places.machines import Box
    from trainmover.simulator.places.relaying import Relay
    from trainmover.simulator.world import World

BEAT_US = round(BEAT_S * 1e6)
ANSWER_US = round(ANSWER_S * 1e6)
LOOKS_AT_DISK_US = 100_000
"""So often a write that hangs tries again: a disk may be mended sooner than was drawn."""
EVENTS_BETWEEN = 100
"""From one bookmark to the next, at least."""


class Line:
    """The controller's end of a connection; `server.surroundings.Link`."""

    def __init__(self, host: "Host", box: "Box") -> None:
        self.machine: MachineId | None = None
        self.relay: MachineId | None = None
        self.quiet_ticks = 0
        self.heard_us = host.now
        self.host = host
        uplink = box.uplink
        assert uplink is not None
        self.link = Link(
            host.world,
            box.name,
            up=self._hear,
            down=uplink.hear,
            lost_up=self._lost,
            lost_down=uplink.lost,
        )

    def send(self, order: m.Order) -> None:
        self.link.send(m.encode(order), up=False)

    def close(self) -> None:
        """Its last order makes the agent end it."""

    def abort(self) -> None:
        self.link.reset()

    def beat(self) -> None:
        """One more since something came."""
        self.quiet_ticks += 1

    def _heard(self) -> None:
        self.quiet_ticks, self.heard_us = 0, self.host.now

    def _hear(self, _: Link, payload: bytes) -> None:
        self._heard()
        self.host.hear(self, m.decode_agent_fact(payload))

    def _lost(self, _: Link) -> None:
        self.host.link_lost(self)


class TrunkLine:
    """The controller's end of a trunk."""

    def __init__(self, host: "Host", relay: "Relay", box: "Box") -> None:
        self.host, self._box = host, box
        self.trunk: Trunk | None = None
        self.link = Link(
            host.world,
            box.name,
            up=self._hear,
            down=relay.hear,
            lost_up=self._lost,
            lost_down=relay.lost,
        )

    def abort(self) -> None:
        self.link.reset()

    def beat(self) -> None:
        """Its lanes count for themselves."""

    def _hear(self, _: Link, payload: bytes) -> None:
        if self.host.dead:
            return
        if self.trunk is not None:
            self.trunk.hear(payload)
            return
        fact = m.decode_agent_fact(payload)
        assert isinstance(fact, m.Trunk)
        self._begin(fact)

    def _begin(self, fact: m.Trunk) -> None:
        control = self.host.control
        trunk = Trunk(fact.machine, Lanes(self.host), self._write, self.abort)
        account = control.accounts.of.get(fact.machine)
        ours = account is not None and account.incarnation == fact.incarnation
        if ours and control.carrying.opened(trunk, fact.address):
            self.trunk = trunk
        else:
            self.abort()

    def _write(self, payload: bytes) -> None:
        self.link.send(payload, up=False)

    def _lost(self, _: Link) -> None:
        if self.trunk is not None and not self.host.dead:
            self.host.control.carrying.ended(self.trunk)


class Lanes:
    """Who is told of the lanes of a trunk; `server.machines.lanes.LaneOwner`."""

    def __init__(self, host: "Host") -> None:
        self.host = host

    def now(self) -> int:
        return self.host.now

    def soon(self, act: Callable[[], None]) -> None:
        self.host.world.at(0, self._do, act)

    def _do(self, act: Callable[[], None]) -> None:
        if not self.host.dead:
            act()

    def session_for(self, machine: MachineId, relay: MachineId) -> LaneSession | None:
        ticket = self.host.control.carrying.ticket(machine, relay)
        return None if ticket is None else LaneSession(TOKEN, ticket, controller=True)

    def lane_opened(self, lane: Lane) -> None:
        self.host.lanes.append(lane)

    def lane_beat(self, lane: Lane) -> None:
        self.host.control.lane_beat(lane, self.host.now)

    def said_return(self, link: AnyLink, back: m.Return) -> None:
        self.host.control.reception.back(link, back, self.host.now)

    def said(self, link: AnyLink, fact: m.AgentFact) -> None:
        self.host.control.said(link, fact, self.host.now)

    def lane_ended(self, lane: Lane, why: str) -> None:
        self.host.lanes.remove(lane)
        self.host.control.broke(lane, why, self.host.now)


class Host:
    """One controller with its `control`, and `server.surroundings.Surroundings` to it."""

    def __init__(self, world: "World", past: "Past | None" = None) -> None:
        self.world = world
        self.dead = False
        self._deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        newest_us = world.disk.newest().at_us if world.disk.records else 0
        self._clock = Clock(
            newest_us=newest_us, wall_us=lambda: world.wall_us, passed_us=lambda: world.now
        )
        self._lines: list[Line | TrunkLine] = []
        self.lanes: list[Lane] = []
        accounts = past.accounts.of if past is not None else {}
        self._incarnations = {machine: its.incarnation for machine, its in accounts.items()}
        self.control = Control(world.spec, world.disk, self, at_us=self.now, past=past)
        self._clock.stood = self.control.stood
        world.at(BEAT_US, self._beat)
        if past is not None:
            self.control.go_on(self.now, world.wall_us)

    @classmethod
    def took_over(cls, world: "World", torn: int) -> "Host":
        """The next one. torn: records that the journal has lost."""
        from trainmover.server.history.bookmarks import decode  # Not before there is any: it takes
        from trainmover.server.history.past import Past  # its time.

        past, disk = (
            Past(world.disk.nothing_yet(), cut=f"{torn} records" if torn else ""),
            world.disk,
        )
        past.replayed = max(disk.bookmarks, default=0)
        if past.replayed:
            past.job, past.accounts = decode(disk.bookmarks[past.replayed])
        for event in disk.events(past.replayed):
            past.take(event)
        for account in past.accounts.of.values():
            account.facts = max(account.facts, disk.safe.get(account.incarnation, 0))
        world.tell(Replayed(past.job, torn))
        return cls(world, past)

    def die(self) -> None:
        """As by SIGKILL."""
        self.dead = True
        for line in self._lines:
            line.abort()

    def stop_moving(self) -> None:
        """Stop the process, as SIGSTOP does."""
        self.world.network.stop(CONTROLLER)

    def move_again(self) -> None:
        """Let the process go on, as SIGCONT does: it reads its sockets, then does what was due."""
        self.world.network.go_on(CONTROLLER)
        deferred, self._deferred = self._deferred, []
        for act, given in deferred:
            act(*given)

    @property
    def is_stopped(self) -> bool:
        """Whether its process stands still."""
        return CONTROLLER in self.world.network.stopped

    def _is_deferred(self, act: Callable[..., None], *given: Any) -> bool:
        """Whether `act` waits until the process moves again."""
        if self.is_stopped:
            self._deferred.append((act, given))
        return self.is_stopped

    @property
    def now(self) -> int:
        """By its own clock."""
        return self._clock.now()

    @property
    def job(self) -> Job:
        """What it knows."""
        return self.control.job

    # --- what drives it -------------------------------------------------------------------------

    def accept(self, box: "Box") -> Link:
        """An agent has dialled and proved the token."""
        line = Line(self, box)
        self._lines = [one for one in self._lines if not one.link.broken]
        self._lines.append(line)
        return line.link

    def accept_trunk(self, relay: "Relay", box: "Box") -> Link:
        """An agent has dialled as a relay."""
        line = TrunkLine(self, relay, box)
        self._lines.append(line)
        return line.link

    def hear(self, line: Line, fact: m.AgentFact) -> None:
        """A message has come."""
        if self.dead:
            return
        now = self.now
        match fact:
            case m.Hello():
                self.control.reception.hello(line, fact, now)
            case m.Return():
                self.control.reception.back(line, fact, now)
            case _:
                self.control.said(line, fact, now)

    def link_lost(self, line: Line) -> None:
        """A connection has ended."""
        if not self.dead and not self._is_deferred(self.link_lost, line):
            self.control.broke(line, LINK_ENDED, self.now)

    def request(self, event: EVENTS) -> None:
        """From the API, or from who watches the store."""
        if not self.dead and not self._is_deferred(self.request, event):
            self.control.take(event)

    def stop(self, code: int, why: str, within_us: int = 0) -> None:
        """End the job in order; within which time it may write one more checkpoint."""
        if self._is_deferred(self.stop, code, why, within_us):
            return
        until_us = self.now + within_us if within_us else 0
        self.control.stop(code, why, self.now, until_us=until_us)

    def _beat(self) -> None:
        if self.dead or self.control.over is not None or self._is_deferred(self._beat):
            return
        for line in self._lines:
            line.beat()
        for lane in self.lanes:
            lane.quiet_ticks += 1
        self.control.beat(self.now)
        self._keep_bookmark()
        self.world.at(BEAT_US, self._beat)

    def _keep_bookmark(self) -> None:
        """As the server does, more often: a successor need not replay what was before."""
        control, disk = self.control, self.world.disk
        seq, newest = len(disk.records), max(disk.bookmarks, default=0)
        if seq - newest < EVENTS_BETWEEN or control.job.change is not None or control.over:
            return
        from trainmover.server.history.bookmarks import encode

        disk.bookmarks[seq] = encode(control.job, control.accounts)

    # --- what it asks for -----------------------------------------------------------------------

    def happened(self, moment: Decided) -> None:
        """Checkers look at it."""
        self.world.tell(moment)
        event, known = moment.event, self._incarnations
        if isinstance(event, MachineJoined):
            known[event.machine] = event.incarnation
        for effect in moment.effects:
            if isinstance(effect, Fence):
                incarnation = known.get(effect.machine, "")
                self.world.tell(Fenced(effect.machine, incarnation, moment.before.epoch))
        for effect in moment.effects:
            if isinstance(effect, End):
                self.world.tell(Ended(effect))

    def told(self, machine: MachineId, fact: ByTheWay) -> None:
        self.world.tell(Told(machine, fact))

    def note(self, text: str, *, loud: bool = False) -> None:
        """A line of the trace."""
        self.world.note(f"  = {text}")

    def turned_away(self, why: str) -> None:
        """A line of the trace."""
        self.world.note(f"  = {why}")

    def ticket(self) -> str:
        return f"ticket {self.world.random.getrandbits(64)}"

    def answer(self, answer: Answer) -> None:
        self.world.answered(answer)

    def dial(self, machine: MachineId, vault: str) -> None:
        """A vault says its first bytes, or its host that nobody listens, or nothing comes."""
        what = self._found(machine, vault)
        took_us = ANSWER_US if what is Dialled.UNREACHED else self.world.between(200, 4_000)
        self.world.at(took_us, self._dialled, machine, what)

    def _found(self, machine: MachineId, vault: str) -> Dialled:
        box = self.world.boxes[machine]
        if not box.has_power or not self.world.network.reach(machine, CONTROLLER):
            return Dialled.UNREACHED
        if not box.alive or box.address != vault:
            return Dialled.REFUSED
        return Dialled.UNREACHED if box.frozen else Dialled.ANSWERED

    def _dialled(self, machine: MachineId, what: Dialled) -> None:
        if not self.dead and not self._is_deferred(self._dialled, machine, what):
            self.control.dialled(machine, what, self.now)

    def end(self, end: End) -> None:
        self.world.end(end)

    def save(self, order: HostOrder) -> None:
        self.world.at(self.world.between(*self.world.knobs.disk_us), self._saved, order)

    def _saved(self, order: HostOrder) -> None:
        if self.world.disk_hangs:
            self.world.at(LOOKS_AT_DISK_US, self._saved, order)
            return
        if self._is_deferred(self._saved, order):
            return
        event = None if self.dead else self._came_of(order)
        if event is not None:
            self.control.take(event)

    def _came_of(self, order: HostOrder) -> EVENTS | None:
        world, at_us = self.world, self.now
        match order:
            case Publish(checkpoint) if world.disk_full or world.random.random() < 0.03:
                step, epoch = checkpoint.step, checkpoint.epoch
                return CheckpointFailed(at_us=at_us, step=step, epoch=epoch, why="full")
            case Publish(checkpoint):
                world.published[checkpoint.step] = checkpoint
                return CheckpointPublished(at_us=at_us, checkpoint=checkpoint)
            case GiveUpCheckpoint():
                return None
            case FindCheckpoint(epoch, unusable):
                there = {step: world.published[step] for step in world.published.keys() - unusable}
                damaged = {step: bad for step, its in there.items() if (bad := self._damaged(its))}
                found = there.get(max(there.keys() - damaged.keys(), default=Step(0)))
                said = [f"{file} of step {step} is damaged" for step, file in damaged.items()]
                return CheckpointFound(at_us=at_us, epoch=epoch, checkpoint=found, damaged=said)

    def _damaged(self, checkpoint: m.Checkpoint) -> str:
        """The first file of it that is not as it was written."""
        files = (
            file_key(checkpoint.step, part.file)
            for its in checkpoint.states.values()
            for part in its
        )
        return next((key for key in files if key in self.world.rotten), "")
