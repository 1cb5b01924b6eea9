# SPDX-License-Identifier: Apache-2.0
"""Jobs that begin, with machines that are lost meanwhile: who begins, how often all begins again,
and with which words and which exit status it ends where it cannot."""

import random

from courses.trained import SECOND_US, Trained
from trainmover.controller.decide import decide
from trainmover.controller.effects import Effect, End, Fence, Send
from trainmover.controller.events import (
    EVENTS,
    AgentSaid,
    CordonRequested,
    Lost,
    MachineJoined,
    MachinesLost,
    WorkerSaid,
)
from trainmover.controller.state import Job, MachineState, Outcome, Phase
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

EXIT = 7


class Gathering:
    """Machines that come one by one."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.machines, self.standbys = chance.choice(((1, 1), (2, 1), (3, 2), (9, 3)))
        self.nproc = chance.choice((1, 2))
        spec = m.JobSpec(
            run_id="begins", argv=[], machines=self.machines, standbys=self.standbys,
            nproc=self.nproc,
        )  # fmt: skip
        self.job = Job(spec)
        self.now_us = 7 * SECOND_US
        self.names = [MachineId(f"m{n + 1}") for n in range(self.machines + self.standbys)]
        self.regular, self.spares = self.names[: self.machines], self.names[self.machines :]
        self.told: list[Effect] = []
        self.torch = dict.fromkeys(self.names, "2")
        self.lacks: set[MachineId] = set()

    def hear(self, event: EVENTS) -> None:
        self.job, effects = decide(self.job, event)
        self.told += effects

    def join(self) -> None:
        for name in self.chance.sample(self.names, len(self.names)):
            self.hear(
                MachineJoined(
                    at_us=self.now_us, machine=name, standby=name in self.spares, vault=f"{name}:1",
                    host=name,
                )
            )  # fmt: skip

    def lose(self, *names: MachineId) -> None:
        """All at once."""
        lost = [
            Lost(machine=name, why="its link has ended", heard_us=self.now_us - 5) for name in names
        ]
        self.told = [one for one in self.told if not isinstance(one, Fence)]
        self.hear(MachinesLost(at_us=self.now_us, lost=lost))
        fenced = [one.machine for one in self.told if isinstance(one, Fence)]
        if fenced != [*names]:
            raise Violation(f"{names} are to be shut out: {fenced}")

    def come_up(self, names: list[MachineId]) -> None:
        each = [(name, local) for name in names for local in range(self.nproc)]
        for name, local in self.chance.sample(each, len(each)):
            up = m.WorkerUp(
                pid=100 + local, address=f"{name}/{local}", torch=self.torch[name], version="1"
            )
            self.hear(WorkerSaid(at_us=self.now_us, machine=name, local_rank=local, fact=up))

    def runs(self) -> dict[MachineId, int]:
        sent = [one for one in self.told if isinstance(one, Send)]
        return {one.machine: one.order.slot for one in sent if isinstance(one.order, m.RunRank)}

    def end(self) -> End | None:
        return next((one for one in self.told if isinstance(one, End)), None)


def _gathers(chance: random.Random) -> None:
    """Some are lost before all are there; standbys take part in their place, as many as there
    are."""
    it = Gathering(chance)
    it.join()
    gone = chance.sample(it.names, chance.randint(0, it.standbys + 1))
    cordoned: list[MachineId] = []
    left_spares = [name for name in it.spares if name not in gone]
    needed = sum(name in it.regular for name in gone)
    if len(left_spares) > needed and chance.random() < 0.4:
        cordoned = [left_spares.pop(chance.randrange(len(left_spares)))]
    elif chance.random() < 0.2:
        cordoned = [chance.choice(it.regular)]
    for name in cordoned:
        it.hear(CordonRequested(at_us=it.now_us, request="c", machine=name))
    first = chance.randint(0, len(gone))
    together = [gone[:first], *([name] for name in gone[first:])]
    number = 0
    for names in filter(None, together):
        number += len(names)
        it.lose(*names)
        if (it.end() is not None) is not (number > it.standbys):
            raise Violation(f"{number} of {it.standbys} more than needed are lost: {it.end()}")
    end = it.end()
    if end is not None:
        left = len(it.names) - len(gone)
        words = (f"{gone[-1]} was lost before the job began", f"{left} machines are left; ")
        if end.code != 1 or any(one not in end.text for one in words) or it.job.code != 1:
            raise Violation(f"{gone} of {it.names} are lost: {end}")
        return
    rest = [name for name in it.names if name not in gone]
    it.come_up(rest[1:])
    begins = sorted(
        [name for name in it.regular if name not in gone] + left_spares[:needed],
        key=lambda name: int(name[1:]),
    )
    if it.runs() and rest[0] in begins:
        raise Violation(f"{rest[0]} has yet to come, and the job begins: {it.runs()}")
    it.come_up(rest[:1])
    if it.runs() != {name: slot for slot, name in enumerate(begins)}:
        raise Violation(f"{begins} were to begin, and {it.runs()} do; lost are {gone}, {cordoned}")
    if it.job.phase is not Phase.RUNNING or (it.job.epoch, it.job.epoch_last) != (1, 1):
        raise Violation(f"the job begins in epoch {it.job.epoch}, {it.job.phase}")


def _other_torch(chance: random.Random) -> None:
    """Standbys with another torch cannot begin in the place of who is lost."""
    it = Gathering(chance)
    for name in it.spares:
        it.torch[name] = "3"
    it.join()
    gone = chance.choice(it.regular)
    early = chance.random() < 0.5 or it.machines == 1
    rest = [name for name in it.names if name != gone]
    if it.machines == 1:
        return
    if early:
        it.lose(gone)
        it.come_up(rest)
    else:
        it.come_up(rest)
        it.lose(gone)
    end = it.end()
    if end is None or end.code != 1 or "torch 3" not in end.text or it.runs():
        raise Violation(f"{gone} is lost, standbys have another torch: {end}, {it.runs()}")
    if f"{it.machines - 1} machines are left to begin with; {it.machines} are" not in end.text:
        raise Violation(f"{it.machines - 1} of {it.machines} are left: {end}")


def _again(chance: random.Random) -> None:
    """Before the first steps are recorded a loss begins all again, as often as may be."""
    most = chance.choice((0, 1, 3))
    job = Trained(
        chance, machines=3, standbys=2, nproc=chance.choice((1, 2)), restarts_max=most, wait_s=60
    )
    attached = chance.random() < 0.5
    for turn in range(1, most + 2):
        if attached:
            for rank in job.ranks:
                name = job.job.seats[rank // job.nproc]
                job.says(name, rank % job.nproc, m.Attached(rank=Rank(rank)))
        job.settles()
        job.log.clear()
        seats, epoch, slot = [*job.job.seats], job.job.epoch, chance.randrange(3)
        name = seats[slot]
        job.now_us += SECOND_US
        crash = turn > 2 or chance.random() < 0.5
        if crash:
            pid = job.job.machines[name].pids[0]
            exited = m.WorkerExited(local_rank=0, pid=pid, code=-11)
            job.hear(AgentSaid(at_us=job.now_us, machine=name, fact=exited))
        else:
            lost = Lost(machine=name, why="its link has ended", heard_us=job.now_us - 700)
            job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
        end = job.end()
        if turn > most:
            if end is None or end.code != 1 or f"has used its {most} restarts" not in end.text:
                raise Violation(f"loss {turn}, and {most} restarts are allowed: {end}")
            return
        if end is not None or job.job.restarts != turn:
            raise Violation(f"loss {turn} of {most}: {end}, {job.job.restarts} restarts")
        _begins_again(job, name, slot, epoch, crash=crash, attached=attached)


def _begins_again(
    job: Trained, name: MachineId, slot: int, epoch: int, *, crash: bool, attached: bool
) -> None:
    one = job.job.incidents[-1]
    heard_us = job.now_us if crash else job.now_us - 700
    marks = {"heard": heard_us, "detect": job.now_us}
    said = (one.machine, one.rung, one.outcome, one.marks, one.epoch)
    truth = (name, 3, Outcome.OPEN, marks, epoch + 2)
    if said != truth or name not in one.cause:
        raise Violation(f"{name} is lost, so that all begins again: {truth}; it is said {one}")
    why = "the first steps were not recorded yet" if attached else "has not called attach()"
    if why not in one.why_rung:
        raise Violation(f"all begins again since {why}: {one.why_rung}")
    if one.ranks != tuple(job.job.spec.ranks(slot)):  # type: ignore[arg-type]
        raise Violation(f"slot {slot} was lost, and it is said {one.ranks}")
    started = [machine for machine, _ in job.orders(m.StartWorkers)]
    others = [machine for machine in job.job.seats if machine not in started]
    if others or one.joiner != job.job.seats[slot]:
        raise Violation(f"{others} are to begin again: {started}, {one.joiner}")
    job.settles()
    if job.job.phase is not Phase.RUNNING or job.job.epoch != epoch + 2:
        raise Violation(f"all are there again, and the job is {job.job.phase}")
    if any(job.job.machines[seat].state is not MachineState.ACTIVE for seat in job.job.seats):
        raise Violation(f"{job.job.seats} are to have ranks")
    for rank in job.ranks:
        job.commits(job.job.seats[rank // job.nproc], Rank(rank), job.job.epoch)
    if job.job.incidents[-1].outcome is not Outcome.DONE:
        raise Violation(f"all have made a step, and it is said {job.job.incidents[-1]}")


def _scripts_end(chance: random.Random) -> None:
    """All of them, or one in another way than the others."""
    job = Trained(chance, machines=2, standbys=1, nproc=chance.choice((1, 2)), wait_s=60)
    attached = chance.random() < 0.8
    trains = attached and chance.random() < 0.8
    if trains:
        job.trains()
    elif attached:
        for rank in job.ranks:
            job.rank_says(rank, m.Attached(rank=Rank(rank)))
    how = chance.choice(("well", "well", "exits", "raises", "goes on"))
    last = job.ranks[-1]
    step = Step(4 if trains else 0)
    job.told.clear()
    for rank in job.ranks[:-1]:
        done = m.Finished(rank=Rank(rank), step=step, code=0, digest="d", attached=attached)
        job.rank_says(rank, done)
    heard = {name for name, _ in job.orders(m.Ending)}
    if heard != ({*job.job.seats} if attached else set()):
        raise Violation(f"one script has ended, attached: {attached}; {heard} are told")
    ways = {
        "well": m.Finished(rank=Rank(last), step=step, code=0, digest="d", attached=attached),
        "exits": m.Finished(rank=Rank(last), step=step, code=EXIT, digest="d", attached=attached),
        "raises": m.Raised(rank=Rank(last), step=Step(5), error="ValueError", traceback="line 3"),
        "goes on": m.WentOn(rank=Rank(last), step=Step(step + 1)),
    }
    if job.end() is not None:
        raise Violation(f"a script still runs, and the job has ended: {job.end()}")
    job.rank_says(last, ways[how])
    if how == "well":
        _leave(job, attached=attached, trains=trains)
        return
    code = EXIT if how == "exits" else 1
    words = {
        "exits": f"exit status {EXIT} on rank {last}",
        "raises": f"Rank {last} raised ValueError",
        "goes on": f"ended after step {step}, but rank {last} went on to step {step + 1}",
    }[how]
    end = job.end()
    if end is None or end.code != code or words not in end.text or job.job.code != code:
        raise Violation(f"rank {last} {how}: {end}")


def _leave(job: Trained, *, attached: bool, trains: bool) -> None:
    """The job ends once all processes have; and says what it could not protect."""
    if {name for name, _ in job.orders(m.Exit)} != {*job.job.seats}:
        raise Violation(f"all are to leave: {job.orders(m.Exit)}")
    for rank in job.ranks:
        if job.end() is not None:
            raise Violation(f"rank {rank} has yet to leave: {job.end()}")
        name, local = job.at(rank)
        gone = m.WorkerExited(local_rank=local, pid=job.job.machines[name].pids[local], code=0)
        job.agent_says(name, gone)
    words = "" if trains else "no function marked" if attached else "never called"
    end = job.end()
    if end is None or end.code or words not in end.text or bool(words) is not bool(end.text):
        raise Violation(f"all have left, attached {attached}, trained {trains}: {end}")


def play(chance: random.Random) -> None:
    """One of them."""
    chance.choice((_gathers, _gathers, _other_torch, _again, _again, _scripts_end))(chance)
