# SPDX-License-Identifier: Apache-2.0
"""A job that has come so far by what its machines have said, and what it is told from then on."""

import random
from typing import Any

from trainmover.controller.decide import decide
from trainmover.controller.effects import Effect, End, Fence, Send
from trainmover.controller.events import (
    EVENTS,
    AgentSaid,
    MachineJoined,
    Tick,
    WorkerSaid,
)
from trainmover.controller.state import Job, MachineState
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol import messages as m

SECOND_US = 1_000_000


class Trained:
    """Machines m1, m2 and so on: those with ranks first, then standbys.

    told    all that was ordered since it was last looked at; log: and was done
    gap_us  from the last step before a change to the first after it, of rank 0: the longest
    commits_first  there is such a step; mute: ranks that do not come to their boundary
    length  steps that the script is believed to make; 0: nobody knows
    alike   all ranks hold the same state
    stages  how many programs, slot by slot; unfit: machine and program that it cannot run
    """

    def __init__(self, chance: random.Random, **knobs: Any) -> None:
        spec = m.JobSpec(run_id="course", argv=["train.py"], **knobs)
        self.chance = chance
        self.now_us = chance.randrange(1, 1000) * SECOND_US
        self.told: list[Effect] = []
        self.log: list[Effect] = []
        self.started = 0
        self.step = Step(4)
        self.gap_us = 150_000
        self.commits_first = True
        self.mute: set[int] = set()
        self.length = 0
        self.alike = True
        self.stages = 1
        self.unfit: set[tuple[MachineId, str]] = set()
        self.job = Job(spec)
        self.names = [MachineId(f"m{n + 1}") for n in range(spec.machines + spec.standbys)]
        self.nproc = spec.nproc
        for at, name in enumerate(self.names):
            self.hear(
                MachineJoined(
                    at_us=self.now_us,
                    machine=name,
                    standby=at >= spec.machines,
                    vault=f"{name}:1",
                    host=name,
                )
            )
        for name in self.names:
            self.comes_up(name)
        self.told = [one for one in self.told if not _starts(one)]

    def comes_up(self, name: MachineId) -> None:
        for local in range(self.nproc):
            up = m.WorkerUp(
                pid=self.pid(name, local) + 10_000 * self.started,
                address=f"{name}/{local}",
                torch="2",
                version="1",
            )
            self.says(name, local, up)

    def pid(self, name: MachineId, local: int) -> int:
        """Of the first process there."""
        return 100 * self.names.index(name) + local + 1

    def trace(self, rank: int) -> str:
        """What the script does there."""
        return f"t{rank // self.nproc % self.stages}"

    def at(self, rank: int) -> tuple[MachineId, int]:
        """Where it was at first."""
        slot, local = divmod(rank, self.nproc)
        return self.names[slot], local

    @property
    def ranks(self) -> range:
        return range(self.job.spec.world_size)

    def trains(self) -> None:
        """All ranks have made their first steps, and each standby holds a run."""
        for rank in self.ranks:
            self.rank_says(rank, m.Attached(rank=Rank(rank)))
        for rank in self.ranks:
            row = m.Row(step=self.step, at_us=0, values={})
            said = m.Committed(rank=Rank(rank), epoch=self.job.epoch, rows=[row], first=True)
            self.rank_says(rank, said)
        for rank in self.ranks:
            said_of = m.Recorded(
                rank=Rank(rank),
                step=Step(3),
                trace=self.trace(rank),
                digest="d" if self.alike else f"d{rank}",
                bytes=1,
                length=self.length,
            )
            self.rank_says(rank, said_of)
        self.settles()

    def _gets_ready(self, name: MachineId) -> None:
        for state in (MachineState.WARMING, MachineState.HOLDING):
            one = self.job.machines[name]
            if one.state is not state or one.work is None:
                continue
            for local, rank in enumerate(self.job.spec.ranks(one.work)):
                if (name, self.trace(rank)) in self.unfit:
                    self.says(name, local, m.SandboxFailed(rank=rank, reason="it raised"))
                    continue
                ready: m.WorkerFact = m.Held(
                    rank=rank, trace=self.trace(rank), run_ms=20, held_bytes=2000, device_bytes=0
                )
                if state is MachineState.WARMING:
                    ready = m.Warm(
                        rank=rank, shadow_steps=3, trace=self.trace(rank), warm_ms=50, held_bytes=9,
                        device_bytes=0,
                    )  # fmt: skip
                self.says(name, local, ready)

    # --- what it is told ------------------------------------------------------------------------

    def hear(self, event: EVENTS) -> None:
        self.job, effects = decide(self.job, event)
        self.told += effects

    def says(self, name: MachineId, local: int, fact: Any) -> None:
        self.hear(WorkerSaid(at_us=self.now_us, machine=name, local_rank=local, fact=fact))

    def rank_says(self, rank: int, fact: Any) -> None:
        self.says(*self.at(rank), fact)

    def agent_says(self, name: MachineId, fact: Any) -> None:
        self.hear(AgentSaid(at_us=self.now_us, machine=name, fact=fact))

    def passes(self, us: int) -> None:
        """So much time, of which the job hears at its end."""
        self.now_us += us
        self.hear(Tick(at_us=self.now_us))

    # --- machines that do at once what they are told ---------------------------------------------

    def settles(self) -> None:
        """Until all that is ordered is done; `log` has it."""
        while self.told:
            effect = self.told.pop(0)
            self.log.append(effect)
            if isinstance(effect, Send) and effect.machine in self.job.machines:
                self._obeys(effect.machine, effect.order)

    def rests(self, seconds: int = 3) -> None:
        """The same, and some time passes."""
        for _ in range(seconds):
            self.settles()
            self.passes(SECOND_US)
        self.settles()

    def _obeys(self, name: MachineId, order: m.Order) -> None:
        match order:
            case m.StartWorkers():
                self.started += 1
                self.comes_up(name)
            case m.WarmUp() | m.Hold():
                self._gets_ready(name)
            case m.Bind(epoch=epoch, slot=slot):
                for rank in self.job.spec.ranks(slot):
                    parked = m.Parked(rank=rank, epoch=epoch, trace=self.trace(rank), bind_ms=1)
                    self.says(name, rank % self.nproc, parked)
            case m.Prepare(epoch=epoch):
                for rank in self._ranks_of(name):
                    self.says(name, rank % self.nproc, m.Prepared(rank=rank, epoch=epoch))
            case m.PauseAt(epoch=epoch) | m.Verdict(epoch=epoch):
                for rank in [one for one in self._ranks_of(name) if one not in self.mute]:
                    there = m.AtBoundary(rank=rank, epoch=epoch, committed=self.step)
                    self.says(name, rank % self.nproc, there)
            case m.Interrupt(epoch=epoch):
                for rank in self._ranks_of(name):
                    stood = m.Position(rank=rank, epoch=epoch, committed=self.step, gate=Step(0))
                    self.says(name, rank % self.nproc, stood)
                records = {Rank(rank): [Step(self.step + 1)] for rank in self.ranks}
                self.agent_says(name, m.VaultHeld(epoch=epoch, records=records))
            case m.Switch():
                self._switches(name, order)
            case m.Go(epoch=epoch) if self.commits_first:
                for rank in self._ranks_of(name):
                    self.commits(name, rank, epoch)
            case m.Leave():
                for local in range(self.nproc):
                    self.says(name, local, m.Left())
            case _:
                pass

    def _ranks_of(self, name: MachineId) -> list[Rank]:
        """That it has, or is to take."""
        change = self.job.change
        takes = change.joiners.items() if change is not None else ()
        slot = next((slot for slot, one in takes if one == name), self.job.slot_of(name))
        return [] if slot is None else self.job.spec.ranks(slot)

    def _switches(self, name: MachineId, order: m.Switch) -> None:
        for rank in self._ranks_of(name):
            local = rank % self.nproc
            if rank in order.sources and self.job.slot_of(name) != rank // self.nproc:
                self.says(name, local, self._loaded(rank, order))
            self.says(name, local, m.Switched(rank=rank, epoch=order.epoch))

    def _loaded(self, rank: Rank, order: m.Switch) -> m.Loaded:
        certificate = m.Certificate(
            rank=rank, source_rank=order.sources[rank][0].rank, step=order.committed,
            epoch=order.epoch, source_digest="d", joiner_digest="d", trace="t", position="",
            bytes=8, state_ms=1.0,
        )  # fmt: skip
        return m.Loaded(rank=rank, epoch=order.epoch, certificate=certificate)

    def commits(self, name: MachineId, rank: Rank, epoch: Epoch) -> None:
        row = m.Row(step=Step(self.step + 1), at_us=0, values={})
        fact = m.Committed(
            rank=rank,
            epoch=epoch,
            rows=[row],
            first=True,
            gap_us=self.gap_us - 1000 * rank,
            median_us=100_000,
        )
        self.says(name, rank % self.nproc, fact)

    # --- what it has ordered --------------------------------------------------------------------

    def orders(self, kind: type[m.Order]) -> list[tuple[MachineId, Any]]:
        """Those of that kind since it was last asked, which forgets them all."""
        sent = [effect for effect in self.told if isinstance(effect, Send)]
        return [(one.machine, one.order) for one in sent if isinstance(one.order, kind)]

    def fenced(self) -> list[MachineId]:
        return [effect.machine for effect in self.told if isinstance(effect, Fence)]

    def end(self) -> End | None:
        return next((effect for effect in self.told if isinstance(effect, End)), None)


def _starts(effect: Effect) -> bool:
    """Whether it is an order to start processes: they are up."""
    return isinstance(effect, Send) and isinstance(effect.order, m.StartWorkers)
