# SPDX-License-Identifier: Apache-2.0
"""A machine: its agent with outbox, link and vault, and the processes of its workers.

What a machine does later is forgotten if it dies meanwhile (`life`), and put off while it stands
still. The agent obeys as the agent room does, with its own decisions (`agent.decide`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from trainmover.agent.decide import Place, place_after
from trainmover.agent.together import WAIT_S, Together
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.protocol.deadlines import ANSWER_S
from trainmover.simulator.happenings import Said
from trainmover.simulator.knobs import OTHER_TORCH, TORCH
from trainmover.simulator.places.network import CONTROLLER, Link
from trainmover.simulator.places.relaying import Relay
from trainmover.simulator.places.uplink import Uplink
from trainmover.simulator.ranks.snapshots import Snapshot
from trainmover.simulator.ranks.workers import Worker
from trainmover.version import VERSION

if TYPE_CHECKING:
    from trainmover.simulator.world import World

ANSWER_US = round(ANSWER_S * 1e6)
SEES_US = (100, 20_000)
WAIT_US = round(WAIT_S * 1e6)
OLD_VERSION = "0.0.0"
CLOCK_OFF_US = 7_000_000
"""Of a sick machine's clock, if that is what it has."""
MEMORY, FREE, FULL_US = 64_000_000_000, 0.6, 1_000_000_000
"""Bytes of a machine's memory, how much of it is free, and after how long it is full that fills."""
Act = Callable[..., None]


class Box:
    """alive: its agent runs; frozen: nothing of it moves. has_power: its kernel answers."""

    def __init__(self, world: "World", name: MachineId, *, standby: bool, rack: str = "") -> None:
        self.world, self.name, self.standby, self.rack = world, name, standby, rack
        self.life = self.booted_us = 0
        self.address = ""
        self.alive = self.frozen = self.served = self.has_power = False
        self._links_before: list[Link] = []
        self.relay: Relay | None = None
        self.deferred: list[tuple[int, Act, tuple[Any, ...]]] = []
        self.workers: list[Worker] = []
        self.born = self.starts = 0
        self._forget()

    def _forget(self) -> None:
        """As one that begins anew: nothing that was is left."""
        self.vault: dict[Rank, dict[Step, list[m.Row]]] = {}  # Records: the rows that they bring.
        self.fence = Epoch(0)  # Its vault keeps no record of an older epoch.
        self.snapshots: dict[Rank, dict[Step, Snapshot]] = {}  # of other machines
        self.has_room = True  # For snapshots, in its vault.
        self.buddies: dict[Rank, str] = {}
        self.further: dict[Rank, str] = {}
        self.place = Place()
        self.together = Together(self.world.spec.nproc)
        self.uplink: Uplink | None = None
        self.unsafe = False
        self.starts += 1
        self.store = self.world.first_store

    def _begin_anew(self, after_us: int) -> None:
        """An agent that nobody knows."""
        self._forget()
        self.born += 1
        self.uplink = Uplink(self, f"{self.name}.{self.born}", after_us)

    # --- time -----------------------------------------------------------------------------------

    def later(self, delay_us: int, act: Act, *args: Any) -> None:
        """Do it then, if the machine has not died."""
        self.world.at(delay_us, self._due, self.life, act, args)

    def _due(self, life: int, act: Act, args: tuple[Any, ...]) -> None:
        if life != self.life:
            return
        if self.frozen:
            self.deferred.append((life, act, args))
        else:
            act(*args)

    def thaw(self) -> None:
        """It moves again."""
        if not self.frozen:
            return
        self.frozen = False
        deferred, self.deferred = self.deferred, []
        for life, act, args in deferred:
            self.world.at(0, self._due, life, act, args)

    # --- life -----------------------------------------------------------------------------------

    def boot(self) -> None:
        """The agent starts."""
        self.life += 1
        self.booted_us = self.world.now
        self.address = f"{self.name}:{self.life}"
        self.alive, self.frozen, self.served, self.has_power = True, False, False, True
        self._begin_anew(self.world.between(1_000, 20_000))
        before, self._links_before = self._links_before, []
        for link in before:  # Of which this kernel knows nothing.
            self.later(self.world.between(1_000, 200_000), link.reset)

    def memory(self) -> tuple[int, int]:
        """Bytes that are free, and that there are. Of one that fills none is free in the end."""
        fills = self.name in self.world.knobs.fills
        gone = min((self.world.now - self.booted_us) / FULL_US, 1.0) if fills else 0.0
        return round(FREE * (1 - gone) * MEMORY), MEMORY

    def die(self, *, silent: bool) -> None:
        """Everything on it is gone at once; silent: nobody is told by a closed socket."""
        if not self.alive:
            return
        self.world.struck.add(self.name)
        self.life += 1
        self.alive = self.frozen = False
        self.has_power = not silent
        self.deferred.clear()
        workers, self.workers = self.workers, []
        self._end(workers, silent=silent)
        links = [self.link] if self.link is not None else []
        relay, self.relay = self.relay, None
        if relay is not None:
            links += relay.links
            relay.over = True
        for link in links:
            if not silent:
                link.reset()
        self._links_before = links if silent else []
        self._forget()
        self.world.died(self)

    def _end(self, workers: list[Worker], *, silent: bool = False) -> None:
        for worker in workers:
            worker.gone = True
            self.world.processes.pop(f"{self.name}/{worker.pid}", None)
            if worker.live and not silent:
                self.world.peers_notice(worker)

    def answers(self, other: "Box") -> bool:
        """Whether what it keeps can be had from there."""
        reach = other is self or self.world.network.reach(self.name, other.name)
        return self.alive and not self.frozen and reach

    # --- what its agent says --------------------------------------------------------------------

    @property
    def link(self) -> Link | None:
        """That it has to the controller."""
        return self.uplink.link if self.uplink is not None else None

    @property
    def incarnation(self) -> str:
        return self.uplink.letters.incarnation if self.uplink is not None else ""

    @property
    def is_in(self) -> bool:
        """Whether the controller hears it, as its agent knows."""
        return self.uplink is not None and self.uplink.letters.welcomed

    def hello(self, incarnation: str) -> m.Hello:
        """What an agent says first."""
        return m.Hello(
            machine=self.name,
            version=VERSION if self.name not in self.world.knobs.old else OLD_VERSION,
            protocol=m.PROTOCOL,
            nproc=self.world.spec.nproc,
            standby=self.standby or self.served,
            vault=self.address,
            host=f"host of {self.name}",
            pid=1,
            incarnation=incarnation,
            rack=self.rack,
        )

    def keep_told(self, keep: bool) -> None:
        """What its workers tell may be lost with it, or is safe again."""
        self.unsafe = keep
        for worker in self.workers:
            worker.hear(m.KeepTold(keep=keep))

    def say(self, fact: m.AgentFact) -> None:
        """A fact that must not be lost, behind all that waits to be said together."""
        self._say_together()
        if not isinstance(fact, m.FromWorker):
            self.world.tell(Said(self.name, fact))
        self._say(fact)

    def _say_together(self) -> None:
        for given in self.together.given():
            self._say(given)

    def _say(self, fact: m.AgentFact) -> None:
        if self.uplink is not None:
            self.uplink.say(fact)

    def refused(self, order: m.Refused) -> None:
        """The machine was given up for lost: nothing of what it is may go on."""
        self._end_workers()
        if self.relay is not None:
            self.relay.end()
        if order.retry_s is None:
            self.die(silent=False)
        else:
            self._begin_anew(round(order.retry_s * 1e6) + 5_000)

    # --- orders ---------------------------------------------------------------------------------

    def obey(self, order: m.Order) -> None:
        """Do what is ordered."""
        match order:
            case m.Welcome():
                self.served = True
            case m.LookFor():
                self._look_for(order)
            case m.BeRelay():
                self._be_relay()
            case m.FetchBehind():
                self._fetch(order)
            case m.StartWorkers():
                self._end_workers()
                self.starts += 1  # The newest counts.
                self.later(self.world.between(2_000, 10_000), self._start_workers, self.starts)
            case m.Die():
                self.die(silent=False)
            case m.EndWorker():
                self._end_worker(order)
            case m.Examine():
                self.later(self.world.between(50_000, 2_000_000), self._examined, order)
            case m.Probe():
                self.later(self.world.between(5_000, 300_000), self._probed, order)
            case m.WorkerOrder():
                self._hand_out(order)

    def _fetch(self, order: m.FetchBehind) -> None:
        other = self.world.vault_at(order.vault)
        if other is not None and other.answers(self) and other.uplink is not None:
            behind = m.GoBehind(relay=self.name, address=order.address, ticket=order.ticket)
            other.later(self.world.between(1_000, 10_000), other.uplink.come_behind, behind)

    def _be_relay(self) -> None:
        world = self.world
        if self.relay is not None and not self.relay.over:
            return
        if world.host is not None and world.network.reach(self.name, CONTROLLER):
            self.relay = Relay(self, self.incarnation)

    def _hand_out(self, order: m.WorkerOrder) -> None:
        self.place = place_after(self.place, order)
        if isinstance(order, m.CutComplete):
            for rank, its in self.snapshots.items():
                self.snapshots[rank] = {at: h for at, h in its.items() if at >= order.step}
        elif isinstance(order, m.Switch) and order.back:
            for rank, its in self.snapshots.items():
                self.snapshots[rank] = {at: h for at, h in its.items() if at <= order.committed}
        elif isinstance(order, m.StoreAt):
            self.store = order.address
        elif isinstance(order, m.Interrupt):
            self.fence = max(self.fence, order.epoch)
        for worker in list(self.workers):
            worker.hear(order)
        if isinstance(order, m.Interrupt):
            held = {rank: list(records) for rank, records in self.vault.items()}
            self.say(m.VaultHeld(epoch=order.epoch, records=held))

    def _start_workers(self, number: int) -> None:
        if number != self.starts:
            return
        self.place = Place()
        for local in range(self.world.spec.nproc):
            worker = Worker(self, local, self.world.next_pid(), self.store)
            self.workers.append(worker)
            self.world.processes[f"{self.name}/{worker.pid}"] = worker
            worker.unheard = self.unsafe
            worker.later(self.world.between(20_000, 300_000), self._is_up, worker)

    def _is_up(self, worker: Worker) -> None:
        address = f"{self.name}/{worker.pid}"
        torch = OTHER_TORCH if self.name in self.world.knobs.others else TORCH
        worker.say(m.WorkerUp(pid=worker.pid, address=address, torch=torch, version=VERSION))

    def _end_workers(self) -> None:
        workers, self.workers = self.workers, []
        self._end(workers)

    def _end_worker(self, order: m.EndWorker) -> None:
        for worker in self.workers:
            if worker.local == order.local_rank and worker.pid == order.pid:
                if order.pid % 4:  # Of some nobody can read it.
                    told = m.Stack(local_rank=worker.local, pid=worker.pid, text="in train.py")
                    self.say(told)
                if not worker.blocked:
                    self.exited(worker, -9)
                return

    def _examined(self, order: m.Examine) -> None:
        """A sick one has a disk that is too slow or a clock that is off, or does what no healthy
        machine does."""
        world = self.world
        how = world.random.choice(("slow", "off", "hangs")) if self.name in world.knobs.sick else ""
        figures = {"disk_mb_s": 20.0 if how == "slow" else world.between(450, 550) * 1.0}
        clock_us = world.host.now if world.host is not None else 0
        if how == "hangs":
            failed = "its examination did not end within 60 s"
            self.say(m.Examined(number=order.number, figures={}, failed=failed))
            return
        clock_us += CLOCK_OFF_US * (how == "off")
        self.say(m.Examined(number=order.number, figures=figures, clock_us=clock_us))

    def _probed(self, order: m.Probe) -> None:
        self.say(m.Reached(number=order.number, machines=self._reached(order.vaults)))

    def _look_for(self, order: m.LookFor) -> None:
        found = m.Found(number=order.number, machines=self._reached(order.vaults))
        all_there = len(found.machines) == len(order.vaults)
        took_us = self.world.between(200, 4_000) if all_there else ANSWER_US
        self.later(took_us, self._tell, found)

    def _tell(self, fact: m.AgentFact) -> None:
        """What may be lost with a link."""
        if self.uplink is not None:
            self.uplink.tell(fact)

    def _reached(self, vaults: dict[MachineId, str]) -> list[MachineId]:
        boxes = [self.world.vault_at(vault) for vault in vaults.values()]
        return [box.name for box in boxes if box is not None and box.answers(self)]

    # --- workers --------------------------------------------------------------------------------

    def worker_said(self, worker: Worker, fact: m.WorkerFact) -> None:
        """On its way up."""
        self.world.tell(Said(self.name, fact))
        if isinstance(fact, m.Joint):
            for given in self.together.take(fact):
                self._say(given)
            if self.together.waits:
                self.later(WAIT_US, self._say_together)
            return
        payload = msgspec.Raw(m.encode(fact))
        self.say(m.FromWorker(local_rank=worker.local, payload=payload))

    def exited(self, worker: Worker, code: int) -> None:
        """A process has ended."""
        if worker not in self.workers:
            return
        self.workers.remove(worker)
        self._end([worker])
        exited = m.WorkerExited(local_rank=worker.local, pid=worker.pid, code=code)
        self.later(self.world.between(200, 5_000), self.say, exited)

    def cut_off(self, worker: Worker) -> None:
        """The socket between the two fails: nothing passes any more, and the process ends itself as
        soon as it sees that."""
        worker.cut_off = True
        worker.beside(self.world.between(*SEES_US), self.exited, worker, 1)

    def process_state(self, worker: Worker, state: str, since_ms: int) -> None:
        """What the agent sees of a process that has changed."""
        if worker in self.workers and worker.stopped == bool(state):
            fact = m.WorkerState(
                local_rank=worker.local, pid=worker.pid, state=state, since_ms=since_ms
            )
            self.say(fact)

    # --- vaults ---------------------------------------------------------------------------------

    def follow(self, order: m.RunRank | m.Switch) -> None:
        """Its ranks have these buddies from now on."""
        self.buddies |= order.buddies
        for rank in order.buddies:
            self.further.pop(rank, None)
        self.further |= order.further

    def keep(self, worker: Worker, step: Step, epoch: Epoch, rows: list[m.Row]) -> bool:
        """The record for `step` is safe with the buddy, which keeps the two newest; or it cannot
        be had there now, or members have changed since `epoch`."""
        buddy = self.world.vault_at(self.buddies.get(worker.rank, ""))
        if buddy is None or not buddy.answers(self) or epoch < buddy.fence:
            return False
        held = buddy.vault.setdefault(worker.rank, {})
        held.pop(step, None)
        held[step] = rows
        if len(held) > 2:
            del held[next(iter(held))]
        return True
