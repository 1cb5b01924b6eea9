# SPDX-License-Identifier: Apache-2.0
"""A fake world around the real decisions: a seed is the only chance in it, and time jumps from one
thing that happens to the next.

    World(seed, ...)   machines boot, a job starts; nothing goes wrong by itself
    run(for_us)        let time pass; faults come while `faults` are given
    crash(machine)     let a machine die; `chance` has the other ways things go wrong
    heal()             nothing goes wrong any more, and what was cut is mended
    trace              what happened, a line each

Look at `host.job`, `ended`, `answers` afterwards. Whatever must never be raises `Violation`.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import Answer, End
from trainmover.controller.state import Job
from trainmover.ids import MachineId, Rank, Slot, Step
from trainmover.protocol.messages import Checkpoint, Stands
from trainmover.simulator.happenings import Flipped, Struck
from trainmover.simulator.imagined import FOUND
from trainmover.simulator.knobs import Knobs
from trainmover.simulator.places.disk import Disk
from trainmover.simulator.places.engine import Engine
from trainmover.simulator.places.host import Host
from trainmover.simulator.places.machines import Box
from trainmover.simulator.places.network import CONTROLLER, Network
from trainmover.simulator.places.relaying import Relay
from trainmover.simulator.ranks.bits import Bits
from trainmover.simulator.ranks.snapshots import Snapshot, file_key
from trainmover.simulator.ranks.training import Training
from trainmover.simulator.ranks.workers import Worker
from trainmover.simulator.truth import Truth

if TYPE_CHECKING:
    from trainmover.simulator.checkers import Checker

LOOK_US = 250_000
DEADLINE_US = 900_000
DEADLINE_FIRST_US = 5_000_000
DEADLINE_STEPS = 3
"""A deadline is no shorter than so many steps."""
STEADY_STEPS = 6
RETURNS_US = (300_000, 3_000_000)
TRACE_MAX = 4000


class World:
    """knobs: fields of `Knobs`."""

    def __init__(self, seed: int, *, checkers: "list[Checker] | None" = None, **knobs: Any) -> None:
        self.seed, self.knobs = seed, Knobs(**knobs)
        self.random = random.Random(seed)
        self.first_store = self.store = "store:1"
        self.spec = self.knobs.spec(seed, self.store)
        self.now = self.clock_off_us = 0
        self.trace: deque[str] = deque(maxlen=TRACE_MAX)
        self.show: Callable[[str], None] | None = None
        self.ended: End | None = None
        self.answers: list[Answer] = []
        self.published: dict[Step, Checkpoint] = {}
        self.disk_full = False
        self.disk_hangs_until_us = self.leases_over = 0
        self.hung_writers: set[Rank] = set()
        self.unprepared: set[MachineId] = set()
        self.files: dict[str, Snapshot] = {}
        self.rotten: set[str] = set()
        self.spoilt: set[tuple[Rank, Step]] = set()
        self.unfit: set[tuple[str, str]] = {*self.knobs.unfit}
        self.strays: set[MachineId] = set()
        self.nan_steps: set[Step] = set()
        self.slow: dict[MachineId, float] = {}
        self.heavy: dict[Rank, float] = {}
        self.ever_slow: set[MachineId] = set()
        self.narrow: set[frozenset[MachineId]] = set()
        self.ever_narrow: set[frozenset[MachineId]] = set()
        self.imagined: list[FOUND] = []
        self.noise = random.Random(f"own times {seed}")
        self.struck: set[MachineId] = set()
        self.flips = 0
        self.requests = 0
        self.store_known = True
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = self._pid = 0
        self.truth = Truth(self)
        self._wanted = self.knobs.machines + self.knobs.standbys
        self._checkers: dict[type, list[Callable[[Any], None]]] = {}
        for checker in checkers or ():
            for kind, check in checker.heeds(self).items():
                self._checkers.setdefault(kind, []).append(check)
        self.processes: dict[str, Worker] = {}
        self.network = Network(self)
        self.training = Training(self, self.knobs.steps)
        self.disk = Disk(self.spec)
        if self.spec.resume is not None:
            self._goes_on_from(self.spec.resume)
        self.host: Host | None = Host(self)
        self.boxes: dict[MachineId, Box] = {}
        errs = self.knobs.engine
        self.engine = None if errs is None else Engine(self, errs)
        for number in range(self._wanted if self.engine is None else 0):
            self.add(standby=number >= self.knobs.machines)
        self.at(LOOK_US, self._look)

    def _goes_on_from(self, checkpoint: Checkpoint) -> None:
        """An earlier run has written it."""
        step = self.training.newest = checkpoint.step
        self.published[step] = checkpoint
        for rank, parts in checkpoint.states.items():
            self.files[file_key(step, parts[0].file)] = Snapshot(rank, step, Bits(step), [])

    # --- time -----------------------------------------------------------------------------------

    def at(self, delay_us: int, act: Callable[..., None], *args: Any) -> None:
        """Do it then."""
        self._number += 1
        heapq.heappush(self._queue, (self.now + delay_us, self._number, act, args))

    def between(self, least_us: int, most_us: int) -> int:
        """A duration by chance."""
        return least_us + int(self.random.random() * (most_us - least_us))

    def run(self, for_us: int, *, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass until the job has ended, or something is so; whether that came to be."""
        end, queue = self.now + for_us, self._queue
        while self.ended is None and queue[0][0] <= end:
            if until is not None and until():
                return True
            self.now, _, act, args = heapq.heappop(queue)
            act(*args)
        if self.ended is None:
            self.now = end
        return until is not None and until()

    # --- what there is --------------------------------------------------------------------------

    def workers(self) -> Iterator[Worker]:
        """Every process that lives."""
        return iter(self.processes.values())

    @property
    def disk_hangs(self) -> bool:
        """Whether the controller's host waits for its disk."""
        return self.now < self.disk_hangs_until_us

    def process_at(self, address: str) -> Worker | None:
        return self.processes.get(address)

    def vault_at(self, address: str) -> Box | None:
        """The machine whose vault has this address: another after each boot."""
        box = self.boxes.get(MachineId(address.partition(":")[0]))
        return box if box is not None and box.address == address else None

    def relay_at(self, machine: MachineId, address: str) -> Relay | None:
        """Who listens there for what others say."""
        relay = self.boxes[machine].relay
        there = relay is not None and relay.address == address and not relay.over
        return relay if there else None

    def program(self, rank: Rank) -> str:
        """What the script does there."""
        return self.knobs.program(rank)

    def rank_at(self, slot: Slot, local: int) -> Rank:
        return Rank(slot * self.spec.nproc + local)

    def next_pid(self) -> int:
        self._pid += 1
        return self._pid

    @property
    def wall_us(self) -> int:
        """What the controller's host has for the time; somebody may set it."""
        return self.now + self.clock_off_us

    @property
    def job(self) -> Job:
        """What the controller knows; of one that is dead, what its successor will."""
        assert self.host is not None
        return self.host.job

    # --- what happens ---------------------------------------------------------------------------

    def tell(self, happening: object) -> None:
        """Checkers look at it."""
        for check in self._checkers.get(type(happening), ()):
            check(happening)

    def befell(self, name: str) -> None:
        """A fault has happened, by its name in `faults.NAMES`."""
        self.truth.struck()
        self.tell(Struck(name))

    def note(self, text: str) -> None:
        """A line of the trace."""
        line = f"{clock(self.now)}  {text}"
        self.trace.append(line)
        if self.show is not None:
            self.show(line)

    def add(self, *, standby: bool, name: MachineId | None = None) -> Box:
        """One machine more."""
        letter = "m" if self.engine is None else "a"  # What an engine starts is named by the job.
        name = name or MachineId(f"{letter}{len(self.boxes) + 1}")
        rack = f"rack {len(self.boxes) % self.knobs.racks}" if self.knobs.racks else ""
        box = self.boxes[name] = Box(self, name, standby=standby, rack=rack)
        box.boot()
        return box

    def crash(self, machine: MachineId, *, silent: bool = False) -> None:
        """A machine dies; silent: nobody is told by a closed socket."""
        self.boxes[machine].die(silent=silent)

    def flip(self, worker: Worker) -> None:
        """A bit of its rank's state flips."""
        self.flips += 1
        worker.holds = worker.holds._replace(flaw=self.flips)
        self.tell(Flipped(worker, self.flips))

    def slow_down(self, machine: MachineId, by: float) -> None:
        """From now on all that a machine does lasts so many times as long."""
        self.slow[machine] = by
        self.ever_slow.add(machine)

    def died(self, box: Box) -> None:
        """It may return; or another machine comes, which has another name."""
        alive = sum(one.alive for one in self.boxes.values())
        if self.engine is not None or not self.knobs.refill or alive >= self._wanted:
            return
        delay_us = self.between(*RETURNS_US)
        if self.random.random() < 0.5:
            self.at(delay_us, self._returns, box)
        else:
            self.at(delay_us, self._comes)

    def _returns(self, box: Box) -> None:
        if not box.alive:
            self.note(f"{box.name} returns")
            box.standby = True
            box.boot()

    def _comes(self) -> None:
        self.note(f"{self.add(standby=True).name} comes")

    def peers_notice(self, gone: Worker) -> None:
        """The connections of a process have ended: those it had them with drain."""
        for worker in list(self.workers()):
            peer = worker.live and worker is not gone and worker.epoch == gone.epoch
            if peer and self.network.reach(worker.box.name, gone.box.name):
                worker.later(self.between(500, 8_000), worker.peer_lost, gone.epoch)

    def lose_controller(self, away_us: int, *, torn: int = 0) -> None:
        """It dies; after a while another takes over. torn: records that its journal has lost."""
        if self.host is None:
            return
        host, self.host = self.host, None
        self.network.stopped.discard(CONTROLLER)
        host.die()
        if torn:
            self.disk.tear(torn, clean=self.random.random() < 0.5)
        self.at(away_us, self._take_over)

    def stop_controller(self, for_us: int) -> None:
        """Its process stands still for a while, unless it dies meanwhile."""
        if self.host is None:
            return
        host = self.host
        host.stop_moving()
        self.at(for_us, lambda: host.move_again() if self.host is host else None)

    def _take_over(self) -> None:
        torn = self.disk.cut()
        self.host = Host.took_over(self, torn)
        if self.store_known and self.store != (self.job.store or self.first_store):
            self._tell_of_store()  # Whoever watches it says so to each controller.
        self.note(f"the controller is back{f', {torn} records were torn' if torn else ''}")

    def lose_store(self, *, at_once: bool = False) -> None:
        """It dies; whoever watches it starts another and tells the controller."""
        self.store = f"store:{int(self.store[6:]) + 1}"
        self.store_known = False
        self.at(0 if at_once else self.between(50_000, 500_000), self._tell_of_store)

    def _tell_of_store(self) -> None:
        from trainmover.controller.events import StoreMoved

        if self.host is None:
            self.at(200_000, self._tell_of_store)
        else:
            self.store_known = True
            self.host.request(StoreMoved(at_us=self.host.now, address=self.store))

    def heal(self) -> None:
        """Nothing is cut, slow or full any more. What stands still is for the job to find."""
        if self.engine is not None:
            self.engine.errs = 0.0
        self.disk_full = False
        self.disk_hangs_until_us = 0
        self.hung_writers.clear()
        self.unprepared.clear()
        self.network.slow.clear()
        self.slow.clear()
        self.heavy.clear()
        self.narrow.clear()
        if self.host is not None and self.host.is_stopped:
            self.host.move_again()
        for one, other in list(self.network.cuts):
            self.network.mend(one, other)
        for box in self.boxes.values():
            box.thaw()
        self.training.look_again()

    def answered(self, answer: Answer) -> None:
        self.answers.append(answer)

    def end(self, effect: End) -> None:
        """The job is over, and so is this world."""
        self.ended = effect

    # --- ranks that stand still -----------------------------------------------------------------

    def _look(self) -> None:
        """As the watch of every worker does, all at once."""
        for worker in list(self.workers()):
            deadline = DEADLINE_US if worker.lived_steps > STEADY_STEPS else DEADLINE_FIRST_US
            deadline = max(deadline, DEADLINE_STEPS * self.knobs.step_us)
            if self.now - worker.moved_us > deadline and self._is_watched(worker):
                self._stands(worker, deadline)
        self.at(LOOK_US, self._look)

    def _is_watched(self, worker: Worker) -> bool:
        if not worker.live or worker.stopped or worker.quiet or worker.box.frozen:
            return False
        held = worker.pending or worker.drains or worker.paused
        return not worker.finished and (not held or worker.stuck)

    def _stands(self, worker: Worker, deadline_us: int) -> None:
        where = "script" if worker.stuck else "call" if worker.gate else "runtime"
        if where == worker.stands:
            return
        worker.stands = where
        worker.say(
            Stands(
                rank=worker.rank,
                epoch=worker.epoch,
                step=Step(worker.step + 1),
                where=where,
                counts={"w": worker.calls},
                call="all_reduce" if where == "call" else "",
                still_ms=(self.now - worker.moved_us) // 1000,
                deadline_ms=deadline_us // 1000,
            )
        )


def clock(us: int) -> str:
    """Virtual time for people.

    >>> clock(61_500_250)
    '01:01.500250'
    """
    minutes, rest = divmod(us, 60_000_000)
    return f"{minutes:02d}:{rest / 1e6:09.6f}"
