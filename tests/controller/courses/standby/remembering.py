# SPDX-License-Identifier: Apache-2.0
"""A job whose standbys' processes remember what they have run, as processes do: none is told to
make a second run where the script runs only once, or to take an old run for a new one.
"""

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from courses.trained import Trained
from trainmover.controller.effects import Send
from trainmover.controller.events import EVENTS, Lost, MachineJoined, MachinesLost
from trainmover.controller.state import MachineState
from trainmover.ids import MachineId, Rank, Slot
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

TWICE = "a second process group cannot be made"
RAISED = "it raised"


@dataclass(frozen=True)
class Proof:
    """What processes of a machine have said of runs as one kind of slot."""

    warm_ms: int = 0
    run_ms: int | None = None
    held_bytes: int = 0
    device_bytes: int = 0
    failed: bool = False


class Processes(Trained):
    """once     machines whose processes can run the script one time only; known: that have said so
    why      what was the matter where a machine was no slot of a kind
    blames   that blame a process for what it fails if it has run the script before
    crash    how often processes of a machine yet die of a run
    refuses  machines that cannot join, and how they find out
    runs     that the present processes of a machine have made, which holds `held`: slot and run
    newest   number of the newest run
    amid     machines of which one process has failed, and others go on with the run
    old      machines that hold a run of steps that nobody makes any more
    """

    def __init__(self, chance: random.Random, **knobs: Any) -> None:
        self.once: set[MachineId] = set()
        self.known: set[MachineId] = set()
        self.why: dict[MachineId, str] = {}
        self.blames: set[MachineId] = set()
        self.crash: Counter[MachineId] = Counter()
        self.refuses: dict[MachineId, str] = {}
        self.runs: Counter[MachineId] = Counter()
        self.held: dict[MachineId, tuple[Slot, int]] = {}
        self.newest = 0
        self.old: set[MachineId] = set()
        self.amid: set[MachineId] = set()
        self.proofs: dict[tuple[MachineId, int], Proof] = {}
        self.travelled: list[m.Certificate] = []
        super().__init__(chance, **knobs)

    def partly(self, orders: int) -> None:
        """Only so many of what is ordered are done."""
        for _ in range(orders):
            if self.told:
                rest, self.told = self.told[1:], self.told[:1]
                one = self.told.pop()
                self.log.append(one)
                if isinstance(one, Send) and one.machine in self.job.machines:
                    self._obeys(one.machine, one.order)
                self.told = rest + self.told

    def lose(self, name: MachineId) -> None:
        self.held.pop(name, None)
        lost = Lost(machine=name, why="its link has ended", heard_us=self.now_us)
        self.hear(MachinesLost(at_us=self.now_us, lost=[lost]))

    def joins(self, name: MachineId) -> None:
        """As a standby."""
        self.names.append(name)
        vault = f"{name}:1"
        self.hear(
            MachineJoined(at_us=self.now_us, machine=name, standby=True, vault=vault, host=name)
        )

    def hear(self, event: EVENTS) -> None:
        before = len(self.told)
        super().hear(event)
        for name, machine in self.job.machines.items():
            if machine.held is not None and machine.state is not MachineState.WARM:
                raise Violation(f"{name} holds a run, and is {machine.state}")
        change = self.job.change
        busy = {*self.job.seats} | {*(change.joiners.values() if change is not None else ())}
        for one in self.told[before:]:
            if not isinstance(one, Send):
                continue
            runs = isinstance(one.order, m.WarmUp | m.Hold)
            if runs and one.machine in busy.union(self.job.cordoned):
                raise Violation(f"{one.machine} has better to do: {one.order}")

    def _obeys(self, name: MachineId, order: m.Order) -> None:
        match order:
            case m.StartWorkers():
                self.runs[name] = 0
                self.held.pop(name, None)
                self.old.discard(name)
                self.amid.discard(name)
                if name not in self.known:
                    self._forgets(name)
                super()._obeys(name, order)
            case m.WarmUp() | m.Hold():
                self._runs(name, order)
            case m.Bind():
                self._binds(name, order)
            case m.Go() if name in self.job.seats:
                self.held.pop(name, None)
                self.proofs = {at: one for at, one in self.proofs.items() if at[0] != name}
                super()._obeys(name, order)
            case _:
                super()._obeys(name, order)

    def _forgets(self, name: MachineId) -> None:
        """What was proven by processes that are gone; what failed would fail again."""
        gone = [at for at, proof in self.proofs.items() if at[0] == name and not proof.failed]
        for at in gone:
            del self.proofs[at]

    def longest(self, name: MachineId) -> int:
        """Run that it has proven."""
        its = [one for at, one in self.proofs.items() if at[0] == name and not one.failed]
        return max((max(one.warm_ms, one.run_ms or 0) for one in its), default=0)

    # --- runs -----------------------------------------------------------------------------------

    def _begins(self, name: MachineId, order: m.WarmUp | m.Hold | m.Bind) -> bool:
        """A run of its own; False: it comes to nothing."""
        if order.run <= self.newest or order.known_ms != self.longest(name):
            raise Violation(f"{name} has proven {self.proofs}, {self.newest} were made: {order}")
        if {*order.records} != {*self.job.spec.ranks(order.slot)}:
            raise Violation(f"{name} is told of other records than it needs: {order}")
        if name in self.amid:
            raise Violation(f"processes of {name} are in the middle of a run: {order}")
        self.newest = order.run
        self.runs[name] += 1
        self.held.pop(name, None)
        self.old.discard(name)
        if name in self.once and self.runs[name] > 1:
            if name in self.known:
                raise Violation(f"{name} makes one run for each process, and another: {order}")
            self.known.add(name)
            self._fails(name, order.slot, again=True)
            return False
        if self.crash[name] and isinstance(order, m.WarmUp | m.Hold):
            self.crash[name] -= 1
            local = self.chance.randrange(self.nproc)
            pid = self.job.machines[name].pids[local]
            self.agent_says(name, m.WorkerExited(local_rank=local, pid=pid, code=-11))
            return False
        return True

    def _fails(self, name: MachineId, slot: Slot, *, again: bool = False) -> None:
        if self.nproc > 1:
            self.amid.add(name)
        local = self.chance.randrange(self.nproc)
        rank = self.job.spec.ranks(slot)[local]
        reason = TWICE if again else RAISED
        self.says(name, local, m.SandboxFailed(rank=rank, reason=reason, again=again))

    def _runs(self, name: MachineId, order: m.WarmUp | m.Hold) -> None:
        if not self._begins(name, order):
            return
        slot, at = order.slot, (name, order.slot % self.stages)
        if (name, f"t{slot % self.stages}") in self.unfit:
            self._cannot(name, order)
            return
        if isinstance(order, m.Hold):
            self.held[name] = slot, order.run
        expected = MachineState.WARMING if isinstance(order, m.WarmUp) else MachineState.HOLDING
        if self.job.machines[name].state is expected:
            self.proofs[at] = self._tells(name, order, self.proofs.get(at, Proof()))

    def _cannot(self, name: MachineId, order: m.WarmUp | m.Hold) -> None:
        """It is no slot of that kind; of a second run the process is believed to be the matter."""
        slot, again = order.slot, name in self.blames and self.runs[name] > 1
        if again:
            self.known.add(name)
        else:
            self.known.discard(name)
            self.proofs[name, slot % self.stages] = Proof(failed=True)
        if self.nproc > 1:
            self.amid.add(name)
        if again or self.chance.random() < 0.5:
            self.why[name] = RAISED
            self._fails(name, slot, again=again)
            return
        local = self.chance.randrange(self.nproc)
        rank = self.job.spec.ranks(slot)[local]
        self.why[name] = f"as rank {rank} its shadow step made other collectives"
        if isinstance(order, m.WarmUp):
            self.says(name, local, m.Warm(rank=rank, shadow_steps=3, trace="x", warm_ms=5000))
        else:
            self.says(name, local, m.Held(rank=rank, trace="x", run_ms=5000))

    def _tells(self, name: MachineId, order: m.WarmUp | m.Hold, before: Proof) -> Proof:
        """All of its processes say how it went, and what that proves."""
        chance, ranks = self.chance, self.job.spec.ranks(order.slot)
        took = [chance.randrange(10, 400) for _ in ranks]
        host = [chance.randrange(10**6, 10**8) for _ in ranks]
        device = [chance.randrange(1000) for _ in ranks]
        for local in chance.sample(range(self.nproc), self.nproc):
            rank = ranks[local]
            self._is_late(name, local, order)
            takes = {"held_bytes": host[local], "device_bytes": device[local]}
            fact: Any = m.Held(rank=rank, trace=self.trace(rank), run_ms=took[local], **takes)
            if isinstance(order, m.WarmUp):
                fact = m.Warm(
                    rank=rank, shadow_steps=3, trace=self.trace(rank), warm_ms=took[local], **takes
                )
            self.says(name, local, fact)
        if isinstance(order, m.WarmUp):
            return Proof(max(took), before.run_ms, sum(host), sum(device))
        if not before.warm_ms:
            return Proof(0, max(took), sum(host), sum(device))
        return replace(before, run_ms=max(took), failed=False)

    def _is_late(self, name: MachineId, local: int, order: m.WarmUp | m.Hold) -> None:
        """What is said of something else than it is at changes nothing."""
        ranks = self.job.spec.ranks(order.slot)
        mine, other = ranks[local], Rank((ranks[-1] + 1) % self.job.spec.world_size)
        trace = self.trace(mine)
        warm = m.Warm(rank=mine, shadow_steps=3, trace=trace, warm_ms=5000, held_bytes=1)
        held = m.Held(rank=mine, trace=trace, run_ms=5000, held_bytes=1)
        late: list[m.WorkerFact] = [
            held if isinstance(order, m.WarmUp) else warm,
            m.Parked(rank=mine, epoch=self.job.epoch, trace="x", bind_ms=1),
            m.Left(),
        ]
        if len(self.job.seats) > 1:
            late += [
                msgspec.structs.replace(warm, rank=other),
                msgspec.structs.replace(held, rank=other),
                m.SandboxFailed(rank=other, reason="of before"),
            ]
        self.counts_for_nothing(name, local, self.chance.choice(late))

    def counts_for_nothing(self, name: MachineId, local: int, fact: m.WorkerFact) -> None:
        before, told = self.job, len(self.told)
        self.says(name, local, fact)
        if self.job != before or len(self.told) != told:
            raise Violation(f"{name} is at something else, and {fact} counts")

    def _binds(self, name: MachineId, order: m.Bind) -> None:
        slot, run = self.held.get(name, (None, 0))
        if slot != order.slot:
            if not self._begins(name, order):
                return
        elif run != order.run or name in self.old:
            raise Violation(f"{name} holds run {run}, {self.old} are old: {order}")
        state = self.job.machines[name].state
        if state not in (MachineState.BOUND, MachineState.LEAVING):
            raise Violation(f"{name} is told {order}, and is {state}")
        how = self.refuses.get(name, "")
        if how == "exits":
            pid = self.job.machines[name].pids[0]
            self.agent_says(name, m.WorkerExited(local_rank=0, pid=pid, code=-11))
        elif how == "raises":
            self._fails(name, order.slot)
        else:
            for local, rank in enumerate(self.job.spec.ranks(order.slot)):
                trace = how or self.trace(rank)
                parked = m.Parked(rank=rank, epoch=order.epoch, trace=trace, bind_ms=1)
                self.says(name, local, parked)

    def _loaded(self, rank: Rank, order: m.Switch) -> m.Loaded:
        loaded = super()._loaded(rank, order)
        assert loaded.certificate is not None
        state_ms, size = float(self.chance.randrange(1, 90)), self.chance.randrange(1, 10**6)
        self.now_us += 1000 * round(state_ms)
        certificate = msgspec.structs.replace(
            loaded.certificate, bytes=size, held=9, state_ms=state_ms
        )
        self.travelled.append(certificate)
        return msgspec.structs.replace(loaded, certificate=certificate)
