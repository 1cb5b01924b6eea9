# SPDX-License-Identifier: Apache-2.0
"""Jobs that begin again before their first steps are recorded: more is lost before all are there,
what is still heard of processes that are gone counts no more, and everything is as at first.
"""

import random

from courses.change.staged import Staged
from trainmover.controller.effects import Fence
from trainmover.controller.events import AgentSaid, Lost, MachinesLost
from trainmover.controller.state import Incident, MachineState, Outcome, Phase
from trainmover.ids import MachineId, Rank
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation


class Course:
    """seats: slot -> machine; pids: of a process that is gone there; restarts: so many were."""

    def __init__(
        self, chance: random.Random, sizes: tuple[tuple[int, int], ...] = ((3, 2), (4, 3))
    ) -> None:
        self.chance = chance
        machines, standbys = chance.choice(sizes)
        self.nproc = chance.choice((1, 2))
        self.job = Staged(
            chance, machines=machines, standbys=standbys, nproc=self.nproc, restarts_max=9,
            snapshot_copies=chance.choice((1, 2)),
        )  # fmt: skip
        self.seats = dict(enumerate(self.job.names[:machines]))
        self.pids: dict[MachineId, int] = {}
        self.restarts = 0
        self.epoch = self.job.job.epoch

    @property
    def one(self) -> Incident:
        return self.job.job.incidents[-1]

    def attach(self) -> None:
        """All have called attach(), and some have recorded their first steps."""
        job = self.job
        for rank in job.ranks:
            name = self.seats[rank // self.nproc]
            job.hears((name, rank % self.nproc, m.Attached(rank=Rank(rank))))

    def loses(self, slots: list[int], *, again: bool) -> None:
        """again: while all begin again anyway."""
        job, names = self.job, [self.seats[slot] for slot in slots]
        spare = [one for one in job.job.machines if one not in self.seats.values()]
        before = job.job.incidents
        known = {one: job.job.machines[one].pids for one in job.job.machines}
        self.pids |= {name: pids[0] for name, pids in known.items() if pids}
        self.restarts += not again
        job.goes_on()
        lost = [Lost(machine=name, why="it is gone", heard_us=job.now_us - 900) for name in names]
        job.hear(MachinesLost(at_us=job.now_us, lost=lost))
        if len(spare) < len(slots):
            plural = "s" * (len(slots) > 1)
            job.ends(f"it is gone; {len(slots)} machine{plural} must be replaced and")
            return
        self._is_noted(names, before)
        if [one.machine for one in job.told if isinstance(one, Fence)] != names:
            raise Violation(f"{names} are shut out: {job.told}")
        after = dict(enumerate(job.job.seats))
        others = {slot for slot in after if after[slot] != self.seats[slot]}
        new = [after[slot] for slot in slots]
        if others != {*slots} or not {*new} <= {*spare} or len({*new}) < len(new):
            raise Violation(f"{spare} take {slots}: {after}")
        self.seats = after
        order = m.StartWorkers(epoch=job.job.epoch_last, restarts=self.restarts)
        if dict(job.orders(m.StartWorkers)) != dict.fromkeys(after.values(), order):
            raise Violation(f"all begin again: {order}, {job.told}")
        self._is_as_at_first()

    def _is_noted(self, names: list[MachineId], before: tuple[Incident, ...]) -> None:
        job, one = self.job, self.one
        said = (one.number, one.rung, one.outcome, one.epoch, one.marks)
        marks = {"heard": job.now_us - 900, "detect": job.now_us}
        truth = (len(before) + 1, 3, Outcome.OPEN, job.job.epoch_last + 1, marks)
        if said != truth or one.machine not in names or job.job.restarts != self.restarts:
            raise Violation(f"{names} are lost: {truth}, {self.restarts}; noted is {one}")
        if before and before[-1].outcome is Outcome.OPEN:
            old = next(i for i in job.job.incidents if i.number == before[-1].number)
            if old.outcome is not Outcome.FAILED or "another loss came first" not in old.note:
                raise Violation(f"{names} are lost before all are there: {old}")

    def _is_as_at_first(self) -> None:
        known = self.job.job
        if known.phase is not Phase.STARTING or known.committed or known.change is not None:
            raise Violation(f"all begin again: {known.phase}, {known.committed}, {known.change}")
        if known.attached or known.recorded or known.finished or known.snapshot_every:
            raise Violation(f"nothing has been said yet: {known.attached}, {known.recorded}")

    def come_up(self, but: MachineId | None = None) -> None:
        """What is late of processes before does no harm. All begin once the last is there."""
        job = self.job
        names = [name for name in self.seats.values() if name != but]
        for name in self.chance.sample(names, len(names)):
            if job.orders(m.RunRank):
                raise Violation(f"{name} has yet to come up: {job.told}")
            job.goes_on()
            if name in self.pids:
                late = m.WorkerExited(local_rank=0, pid=self.pids[name], code=-9)
                job.hear(AgentSaid(at_us=job.now_us, machine=name, fact=late))
                if job.told or job.job.machines[name].state is not MachineState.STARTING:
                    raise Violation(f"{late} is of a process that is replaced: {job.told}")
            job.catches_up(name)

    def run(self) -> None:
        job = self.job
        orders = dict(job.orders(m.RunRank))
        if {name: order.slot for name, order in orders.items()} != {
            name: slot for slot, name in self.seats.items()
        }:
            raise Violation(f"{self.seats} begin: {orders}")
        keeps: list[str] = []
        twice = job.job.spec.snapshot_copies > 1 and len(self.seats) > 2
        for name, order in orders.items():
            ranks = job.ranks_of([order.slot])
            if order.epoch != job.job.epoch or {*order.buddies} != {*ranks}:
                raise Violation(f"{name} is told {order}, of ranks {ranks}")
            if {*order.further} != ({*ranks} if twice else set()):
                raise Violation(f"{name} has further copies kept, {twice}: {order}")
            both = [{*its.values()} for its in (order.buddies, order.further)]
            if f"{name}:1" in both[0] | both[1] or both[0] & both[1] or len(both[0]) != 1:
                raise Violation(f"others keep what {name} has: {order}")
            keeps += both[0]
        if sorted(keeps) != sorted(f"{name}:1" for name in self.seats.values()):
            raise Violation(f"each keeps for one other: {orders}")
        if job.job.phase is not Phase.RUNNING or job.job.epoch <= self.epoch:
            raise Violation(f"all are there: {job.job.phase}, {job.job.epoch}")
        if any(job.job.machines[n].state is not MachineState.ACTIVE for n in self.seats.values()):
            raise Violation(f"{self.seats} have ranks: {job.job.machines}")
        self.epoch = job.job.epoch
        if job.job.incidents and self.one.epoch != self.epoch:
            raise Violation(f"all begin in epoch {self.epoch}: {self.one}")


def _lost_again(chance: random.Random) -> None:
    course = Course(chance)
    for _ in range(chance.randint(1, 3)):
        if chance.random() < 0.5:
            course.attach()
        slots = sorted(chance.sample([*course.seats], chance.choice((1, 1, 2))))
        course.loses(slots, again=False)
        if course.job.end() is None and chance.random() < 0.4:
            more = chance.choice([*course.seats])
            course.come_up(but=course.seats[more])
            course.loses([more], again=True)
        if course.job.end() is not None:
            return
        course.come_up()
        course.run()


def _another_torch(chance: random.Random) -> None:
    """What takes part turns out to have another torch: a standby that has not takes its place."""
    course = Course(chance)
    job = course.job
    slot = chance.choice([*course.seats])
    course.loses([slot], again=False)
    name, other = course.seats[slot], chance.random() < 0.7
    course.come_up(but=name)
    spare = [one for one in job.job.machines if one not in course.seats.values()]
    job.goes_on()
    for local in range(job.nproc):
        up = m.WorkerUp(
            pid=900 + local, address=f"{name}/{local}", torch="3" if other else "2", version="1"
        )
        job.hears((name, local, up))
    if not other:
        course.run()
        return
    if not spare:
        job.ends(f"{name}: it runs torch 3, the job's ranks run torch 2; 1 machine must be")
        return
    started = [one for one, _ in job.orders(m.StartWorkers)]
    if len(started) != 1 or started[0] not in spare or course.one.joiner != started[0]:
        raise Violation(f"{spare} may begin in the place of {name}: {started}, {course.one}")
    course.seats[slot] = started[0]
    job.catches_up(started[0])
    course.run()


def play(chance: random.Random) -> None:
    """One job."""
    chance.choice((_lost_again, _lost_again, _another_torch))(chance)
