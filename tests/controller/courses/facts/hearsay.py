# SPDX-License-Identifier: Apache-2.0
"""What follows from nothing: said of machines that are none, by processes that are gone, of ranks
that somebody else has, of an epoch that is over, after the end; and what is said at once is what is
said one by one."""

import random
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from courses.trained import SECOND_US, Trained
from trainmover.controller.decide import decide
from trainmover.controller.effects import Answer, Effect
from trainmover.controller.events import (
    EVENTS,
    REQUESTS,
    AgentSaid,
    Lost,
    MachineJoined,
    MachinesLost,
    MoveRequested,
    StopRequested,
    Tick,
    WorkerSaid,
    WorkersSaid,
)
from trainmover.controller.state import Job, Phase
from trainmover.ids import Epoch, MachineId, Rank
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

FACTS: tuple[type[m.WorkerFact], ...] = get_args(m.WORKER_FACTS)
OF_ITS_RANKS = (
    m.Recorded, m.StepsChanged, m.Snapped, m.Wrote, m.Fingerprinted, m.WentOn, m.Raised, m.Stands,
    m.Moves, m.BetweenSteps,
)  # fmt: skip
"""Only who has the rank can know."""
OF_AN_EPOCH = (m.Prepared, m.Position, m.AtBoundary, m.Loaded, m.Switched, m.Committed, m.Snapped)
BESIDE = (m.Warned, m.Taking, m.Weighed, m.Watched)
"""Others heed these."""


def made(kind: Any, **known: Any) -> Any:
    """Some value of that kind; of a struct only what has no default, and is not known, is made."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind)
        needed = {f.name: hints[f.name] for f in msgspec.structs.fields(kind) if f.required}
        given = {name: value for name, value in known.items() if name in hints}
        return kind(
            **{name: made(its) for name, its in needed.items() if name not in given}, **given
        )
    if type(None) in get_args(kind):
        return None
    plain = getattr(get_origin(kind) or kind, "__supertype__", get_origin(kind) or kind)
    return plain()


def nothing_follows(job: Job, event: EVENTS, why: str) -> None:
    after, effects = decide(job, event)
    if after != job or effects:
        raise Violation(f"{why}: {event}, and {effects} follow")


class Course:
    """A job that trains, or whose members change."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.job = Trained(chance, machines=3, standbys=2, nproc=chance.choice((1, 2)), wait_s=60)
        self.job.trains()
        self.changes = chance.random() < 0.6
        if self.changes:
            self.job.mute = {*self.job.ranks}
            if chance.random() < 0.5:
                asked = MoveRequested(at_us=self.job.now_us, request="m", machine=self.job.names[0])
                self.job.hear(asked)
            else:
                self.lose(self.job.names[0])
            for _ in range(chance.randrange(8)):
                self.job.hear(Tick(at_us=self.job.now_us))
            self.job.settles()

    def lose(self, name: MachineId) -> None:
        lost = Lost(machine=name, why="its link has ended", heard_us=self.job.now_us)
        self.job.hear(MachinesLost(at_us=self.job.now_us, lost=[lost]))

    def fact(self, kind: type[m.WorkerFact], rank: int, epoch: int) -> Any:
        return made(kind, rank=Rank(rank), epoch=Epoch(epoch), trace="other")

    def each_says(self, name: MachineId, rank: int, kinds: Any, why: str, **more: Any) -> None:
        job, epoch = self.job.job, more.get("epoch", self.job.job.epoch_last)
        for kind in kinds:
            fact = self.fact(kind, rank, epoch)
            said = WorkerSaid(
                at_us=self.job.now_us, machine=name, local_rank=rank % self.job.nproc, fact=fact
            )
            nothing_follows(job, said, why)
            if kind in get_args(m.Joint):
                at_once = WorkersSaid(at_us=self.job.now_us, machine=name, facts=[fact])
                nothing_follows(job, at_once, why)


def _of_others(chance: random.Random) -> None:
    course = Course(chance)
    job = course.job
    rank = chance.choice(job.ranks)
    course.each_says(MachineId("m77"), rank, FACTS, "there is no such machine")
    for kind in get_args(AgentSaid.__annotations__["fact"]):
        said = AgentSaid(at_us=job.now_us, machine=MachineId("m77"), fact=made(kind))
        nothing_follows(job.job, said, "there is no such machine")
    seats = job.job.seats
    change = job.job.change
    joiners = [*change.joiners.values()] if change is not None else []
    for name in job.job.machines:
        if name != seats[rank // job.nproc]:
            course.each_says(name, rank, OF_ITS_RANKS, f"rank {rank} is elsewhere")
        if name in seats and name not in joiners:
            runs = (m.Warm, m.Held, m.Parked, m.SandboxFailed, m.Left)
            course.each_says(name, rank, runs, f"{name} has ranks")
        course.each_says(name, rank, BESIDE, "it is heeded elsewhere")
    old = job.job.epoch if change is not None else Epoch(job.job.epoch - 1)
    kinds = [kind for kind in OF_AN_EPOCH if change is None or kind not in (m.Committed, m.Snapped)]
    course.each_says(seats[rank // job.nproc], rank, kinds, "its epoch is over", epoch=old)


def _by_processes_that_are_gone(chance: random.Random) -> None:
    """Fresh ones are to come: all that is heard before is of those before."""
    course = Course(chance)
    job = course.job
    change = job.job.change
    joiners = [*change.joiners.values()] if change is not None else []
    name = next(one for one in reversed(job.names) if one not in joiners)
    local = chance.randrange(job.nproc)
    gone = m.WorkerExited(
        local_rank=local, pid=job.job.machines[name].pids[local], code=chance.choice((1, -11))
    )
    job.agent_says(name, gone)
    rank = chance.choice([r for r in job.ranks if r % job.nproc == local])
    kinds = [kind for kind in FACTS if kind is not m.WorkerUp]
    course.each_says(name, rank, kinds, f"{name} has no processes")
    started = [to for to, _ in job.orders(m.StartWorkers)]
    if started != ([] if change is not None else [name]):
        raise Violation(f"{name} has no processes, {started} get some; members change: {change}")
    if change is None:
        before = job.job
        job.agent_says(name, gone)
        if job.job != before:
            raise Violation(f"{gone} is heard again, and that counts")


def _too_late(chance: random.Random) -> None:
    """The job has ended."""
    course = Course(chance)
    job = course.job
    job.hear(StopRequested(at_us=job.now_us, code=3, why="enough"))
    end = job.end()
    if end is None or end.code != 3 or job.job.phase is not Phase.ENDED:
        raise Violation(f"the job was stopped: {end}")
    named: dict[str, Any] = {"machine": MachineId("m2"), "request": "r", "at_us": job.now_us}
    for kind in get_args(REQUESTS):
        after, effects = decide(job.job, made(kind, **named))
        said = effects[0] if effects else None
        if after != job.job or len(effects) != 1 or not isinstance(said, Answer):
            raise Violation(f"the job has ended, and of {kind.__name__} follow {effects}")
        if said.ok or said.request != "r" or "The job has ended" not in said.text:
            raise Violation(f"the job has ended, and it is said {said}")
    others: list[EVENTS] = [
        Tick(at_us=job.now_us + 9 * SECOND_US),
        StopRequested(at_us=job.now_us, code=4, why="more"),
        MachineJoined(at_us=job.now_us, machine=MachineId("m9"), standby=True, vault="v", host="h"),
    ]
    for event in others:
        nothing_follows(job.job, event, "the job has ended")
    name = job.job.seats[1]
    course.each_says(name, job.nproc, FACTS, "the job has ended")
    told = len(job.told)
    course.lose(name)
    if name in job.job.machines or len(job.told) != told:
        raise Violation(f"{name} is lost after the end: {job.told[told:]}")


def _at_once(chance: random.Random) -> None:
    """What ranks of a machine say at the same moment is one event, or several."""
    course = Course(chance)
    job = course.job
    change = job.job.change
    name = chance.choice([one for one in job.job.seats if one in job.job.machines])
    slot = job.job.seats.index(name)
    ranks = job.job.spec.ranks(slot)  # type: ignore[arg-type]
    epoch = job.job.epoch_last
    kind: Any = m.Committed if change is None else chance.choice((m.AtBoundary, m.Prepared))
    more: dict[str, Any] = {"committed": job.step}
    if kind is m.Committed:
        row = m.Row(step=job.step, at_us=0, values={})
        more = {"rows": [row], "first": True, "gap_us": 9000, "median_us": 100}
    facts = [made(kind, rank=rank, epoch=epoch, **more) for rank in ranks]
    one_by_one: tuple[Effect, ...] = ()
    after = job.job
    for rank, fact in zip(ranks, facts, strict=True):
        said = WorkerSaid(at_us=job.now_us, machine=name, local_rank=rank % job.nproc, fact=fact)
        after, effects = decide(after, said)
        one_by_one += effects
    at_once = WorkersSaid(at_us=job.now_us, machine=name, facts=facts)
    if decide(job.job, at_once) != (after, one_by_one):
        raise Violation(f"{facts} are said at once, and one by one other things follow")


def play(chance: random.Random) -> None:
    """One of them."""
    ways = (_of_others, _of_others, _by_processes_that_are_gone, _too_late, _at_once)
    chance.choice(ways)(chance)
