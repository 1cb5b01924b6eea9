"""The controller's host: the loop of the server, with its own accounts, replay and admission.

    link --fact--> event --> journal --> decide --> effects --> links, answers, checkpoints

It stops at any moment (`die`); what it had written is on the disk, and `took_over` makes another of
that, as the server does.
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
    CheckpointFailed,
    CheckpointFound,
    CheckpointPublished,
    ControllerReturned,
    MachineJoined,
    MachineLost,
    StopRequested,
    Tick,
    WorkerSaid,
)
from trainmover.controller.flapping import quarantine_s
from trainmover.controller.state import Job
from trainmover.ids import MachineId
from trainmover.protocol import messages as m
from trainmover.server.accounts import Account, Accounts
from trainmover.server.admission import refusal, taken_back
from trainmover.server.returns import Returns
from trainmover.simulator.happenings import Decided, Fenced, Replayed, Violation
from trainmover.simulator.network import Link

if TYPE_CHECKING:
    from trainmover.server.past import Past
    from trainmover.simulator.machines import Box
    from trainmover.simulator.world import World

BEAT_US = 200_000
QUIET_US = 1_000_000
AWAY_RETRY_S = 1.0


class Host:
    """One controller. `job` is what it knows; over: the job has ended."""

    def __init__(self, world: "World", past: "Past | None" = None) -> None:
        self.world, self.disk = world, world.disk
        self.job = past.job if past is not None else self.disk.nothing_yet()
        self.accounts = past.accounts if past is not None else Accounts()
        self.returns = Returns(len(self.accounts.away), world.now)
        self.links: dict[MachineId, Link] = {}
        self.accepted: list[Link] = []
        self.dead = False
        self.over: End | None = past.over if past is not None else None
        self._unwritten: list[m.Committed] = []
        self._ticked_us = self._began_us = world.now
        world.at(BEAT_US, self._beat)
        if past is not None:
            undone = list(past.accounts.undone)
            self._take(ControllerReturned(at_us=world.now, cut=bool(past.cut)))
            for order in undone:
                self._for_host(order)

    @classmethod
    def took_over(cls, world: "World", torn: int) -> "Host":
        """The next one. torn: records that the journal has lost."""
        from trainmover.server.past import Past  # Not before there is any: it takes its time.

        past = Past(world.disk.nothing_yet(), cut=f"{torn} records" if torn else "")
        for event in world.disk.events():
            past.take(event)
        for account in past.accounts.of.values():
            account.facts = max(account.facts, world.disk.safe.get(account.incarnation, 0))
        world.tell(Replayed(past.job, torn))
        return cls(world, past)

    def die(self) -> None:
        """As by SIGKILL."""
        self.dead = True
        for link in self.accepted:
            link.reset()

    # --- links ----------------------------------------------------------------------------------

    def accept(self, box: "Box") -> Link:
        """An agent has dialled and proved the token."""
        link = Link(
            self.world,
            box.name,
            up=self.hear,
            down=box.hear,
            lost_up=self._link_lost,
            lost_down=box.link_lost,
        )
        self.accepted = [one for one in self.accepted if not one.broken]
        self.accepted.append(link)
        return link

    def _send(self, link: Link, order: m.Order) -> None:
        link.send(m.encode(order), up=False)

    def hear(self, link: Link, payload: bytes) -> None:
        """A message has come."""
        if self.dead:
            return
        fact = m.decode_agent_fact(payload)
        match fact:
            case m.Hello():
                self._said_hello(link, fact)
            case m.Return():
                self._said_return(link, fact)
            case _:
                self._said(link, fact)

    def _said_hello(self, link: Link, hello: m.Hello) -> None:
        present = {*self.job.machines, *self.links}
        why_not = refusal(hello, self.world.spec, present, over=self.over is not None)
        retry_s = AWAY_RETRY_S if hello.machine in self.accounts.away else None
        kept_out_s = quarantine_s(self.job, hello.machine, hello.host, self.world.now)
        if not why_not and kept_out_s:
            why_not, retry_s = "it was lost too often", kept_out_s
        if why_not:
            self._send(link, m.Refused(reason=why_not, retry_s=retry_s))
            return
        self.links[hello.machine] = link
        self._send(link, m.Welcome(spec=self.world.spec))
        self._take(
            MachineJoined(
                at_us=self.world.now,
                machine=hello.machine,
                standby=hello.standby,
                vault=hello.vault,
                host=hello.host,
                incarnation=hello.incarnation,
                rack=hello.rack,
            )
        )

    def _said_return(self, link: Link, back: m.Return) -> None:
        machine = back.machine
        account: Account | None = self.accounts.of.get(machine)
        ours = account is not None and account.incarnation == back.incarnation
        if ours and machine in self.links:
            self._lose(self.links[machine], "its agent has lost the link")
            account = None
        rest = taken_back(back, account, self.job.epoch)
        if isinstance(rest, m.Refused):
            self._send(link, rest)
            return
        self.links[machine] = link
        if not back.heard:
            self._send(link, m.Welcome(spec=self.world.spec))
        if account is not None:
            account.back(back.heard)
            self._send(link, m.Resumed(facts=account.facts))
        for order in rest:
            self._send(link, order)

    def _said(self, link: Link, fact: m.AgentFact) -> None:
        machine = link.machine
        account = self.accounts.of.get(machine)
        if self.links.get(machine) is not link or account is None:
            return
        account.facts += 1
        now, number = self.world.now, account.facts
        if not isinstance(fact, m.FromWorker):
            said = AgentSaid(at_us=now, machine=machine, fact=fact, number=number)  # type: ignore[arg-type]
            self._take(said)
            return
        told = m.decode_worker_fact(fact.payload)
        if isinstance(told, m.UNJOURNALED):
            return
        if isinstance(told, m.Committed):
            self._unwritten.append(told)
            if told.decided_on is None:
                return
            told = told.decided_on
        self._take(
            WorkerSaid(
                at_us=now,
                machine=machine,
                local_rank=fact.local_rank,
                fact=told,  # type: ignore[arg-type]
                number=number,
            )
        )

    def _link_lost(self, link: Link) -> None:
        self._lose(link, "connection closed")

    def _lose(self, link: Link, why: str) -> None:
        """The connection of a machine has ended, or is silent."""
        machine = link.machine
        if self.dead or self.links.get(machine) is not link:
            return
        del self.links[machine]
        link.reset()
        if machine in self.job.machines:
            heard_us = link.heard_us
            lost = MachineLost(at_us=self.world.now, machine=machine, why=why, heard_us=heard_us)
            self._take(lost)

    # --- events and effects ---------------------------------------------------------------------

    def request(self, event: EVENTS) -> None:
        """From the API."""
        self._take(event)

    def _take(self, event: EVENTS) -> None:
        if self.dead or self.over is not None:
            return
        if isinstance(event, WorkerSaid | AgentSaid):
            self._flush({})
        before = self.job
        self.disk.append(event)
        self.accounts.journaled(event, away=False)
        self.job, effects = decide(before, event)
        self.world.tell(Decided(before, event, self.job, effects, len(self.disk.records)))
        for effect in effects:
            self._carry_out(effect, before)

    def _carry_out(self, effect: Effect, before: Job) -> None:
        fenced = self.accounts.of.get(effect.machine) if isinstance(effect, Fence) else None
        self.accounts.ordered(effect)
        match effect:
            case Send(machine=machine, order=order):
                if machine in self.links:
                    self._send(self.links[machine], order)
            case Fence(machine=machine):
                incarnation = fenced.incarnation if fenced is not None else ""
                self.world.tell(Fenced(machine, incarnation, before.epoch))
                link = self.links.pop(machine, None)
                if link is not None:
                    link.reset()
            case Answer():
                self.world.answered(effect)
            case Publish() | GiveUpCheckpoint() | FindCheckpoint():
                self._for_host(effect)
            case End():
                self.over = effect
                self.world.end(effect)

    # --- checkpoints ----------------------------------------------------------------------------

    def _for_host(self, effect: Publish | GiveUpCheckpoint | FindCheckpoint) -> None:
        self.world.at(self.world.between(1_000, 50_000), self._done, effect)

    def _done(self, effect: Publish | GiveUpCheckpoint | FindCheckpoint) -> None:
        if self.dead:
            return
        world, at_us = self.world, self.world.now
        match effect:
            case Publish(checkpoint) if world.disk_full or world.random.random() < 0.03:
                step, epoch = checkpoint.step, checkpoint.epoch
                self._take(CheckpointFailed(at_us=at_us, step=step, epoch=epoch, why="full"))
            case Publish(checkpoint):
                world.published[checkpoint.step] = checkpoint
                self._take(CheckpointPublished(at_us=at_us, checkpoint=checkpoint))
            case FindCheckpoint(epoch, unusable):
                newest = max(world.published.keys() - unusable, default=None)
                found = world.published[newest] if newest is not None else None
                event = CheckpointFound(at_us=at_us, epoch=epoch, checkpoint=found, damaged=[])
                self._take(event)

    # --- time -----------------------------------------------------------------------------------

    def _beat(self) -> None:
        if self.dead or self.over is not None:
            return
        now = self.world.now
        self._tell_what_is_safe()
        if self.accounts.away and self.returns.beat():
            for machine in self.accounts.away:
                why = "it did not come back to the controller, which was restarted"
                self._take(
                    MachineLost(at_us=now, machine=machine, why=why, heard_us=self._began_us)
                )
        if tick_due(self.job, self._ticked_us, now):
            self._ticked_us = now
            self._take(Tick(at_us=now))
        for link in list(self.links.values()):
            if not self.world.quiet(link):
                link.heard_us = now
            elif now - link.heard_us >= QUIET_US:
                self._lose(link, "no heartbeat for 1 s")
        self.world.at(BEAT_US, self._beat)

    def _flush(self, safe: dict[str, int]) -> None:
        unwritten, self._unwritten = self._unwritten, []
        if not unwritten and not safe:
            return
        twice = self.disk.append_rows(unwritten, safe)
        if twice is not None:
            raise Violation(f"rank {twice[0]} has committed step {twice[1]} with two values")

    def _tell_what_is_safe(self) -> None:
        accounts = {machine: self.accounts.of.get(machine) for machine in self.links}
        news = {machine: one for machine, one in accounts.items() if one and one.untold}
        self._flush({one.incarnation: one.facts for one in news.values()})
        for machine, one in news.items():
            one.told = one.facts
            self._send(self.links[machine], m.Heard(facts=one.facts))

    def stop(self, code: int, why: str) -> None:
        """End the job in order."""
        self._take(StopRequested(at_us=self.world.now, code=code, why=why))
