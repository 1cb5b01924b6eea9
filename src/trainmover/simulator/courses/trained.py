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
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol import messages as m

SECOND_US = 1_000_000


class Trained:
    """Machines m1, m2 and so on: those with ranks first, then standbys. told: all that was ordered
    since it was last looked at."""

    def __init__(self, chance: random.Random, **knobs: Any) -> None:
        spec = m.JobSpec(run_id="course", argv=["train.py"], **knobs)
        self.chance = chance
        self.now_us = chance.randrange(1, 1000) * SECOND_US
        self.told: list[Effect] = []
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

    def comes_up(self, name: MachineId) -> None:
        for local in range(self.nproc):
            up = m.WorkerUp(
                pid=self.pid(name, local), address=f"{name}/{local}", torch="2", version="1"
            )
            self.says(name, local, up)

    def pid(self, name: MachineId, local: int) -> int:
        """Of the first process there."""
        return 100 * self.names.index(name) + local + 1

    def at(self, rank: int) -> tuple[MachineId, int]:
        """Where it was at first."""
        slot, local = divmod(rank, self.nproc)
        return self.names[slot], local

    @property
    def ranks(self) -> range:
        return range(self.job.spec.world_size)

    def trains(self, step: int = 4) -> None:
        """All ranks have made their first steps, and each standby holds a run."""
        for rank in self.ranks:
            self.rank_says(rank, m.Attached(rank=Rank(rank)))
        for rank in self.ranks:
            row = m.Row(step=Step(step), at_us=0, values={})
            said = m.Committed(rank=Rank(rank), epoch=self.job.epoch, rows=[row], first=True)
            self.rank_says(rank, said)
        for rank in self.ranks:
            said_of = m.Recorded(rank=Rank(rank), step=Step(3), trace="t", digest="d", bytes=1)
            self.rank_says(rank, said_of)
        for name in self.names:
            self._gets_ready(name)
        self.told.clear()

    def _gets_ready(self, name: MachineId) -> None:
        for state in (MachineState.WARMING, MachineState.HOLDING):
            one = self.job.machines[name]
            if one.state is not state or one.work is None:
                continue
            for local, rank in enumerate(self.job.spec.ranks(one.work)):
                ready: m.WorkerFact = m.Held(
                    rank=rank, trace="t", run_ms=20, held_bytes=2000, device_bytes=0
                )
                if state is MachineState.WARMING:
                    ready = m.Warm(
                        rank=rank, shadow_steps=3, trace="t", warm_ms=50, held_bytes=9,
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

    # --- what it has ordered --------------------------------------------------------------------

    def orders(self, kind: type[m.Order]) -> list[tuple[MachineId, Any]]:
        """Those of that kind since it was last asked, which forgets them all."""
        sent = [effect for effect in self.told if isinstance(effect, Send)]
        return [(one.machine, one.order) for one in sent if isinstance(one.order, kind)]

    def fenced(self) -> list[MachineId]:
        return [effect.machine for effect in self.told if isinstance(effect, Fence)]

    def end(self) -> End | None:
        return next((effect for effect in self.told if isinstance(effect, End)), None)
