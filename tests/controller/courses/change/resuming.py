# SPDX-License-Identifier: Apache-2.0
"""Jobs that go on from a checkpoint: a run before has left it, or it is all that is left of this
one. Everybody joins, in fresh processes, and nobody goes before it is known which one is whole.
"""

import random

import msgspec

from courses.change.staged import Said, Staged
from trainmover.controller.change import options
from trainmover.controller.change.buddies import holding
from trainmover.controller.effects import FindCheckpoint
from trainmover.controller.events import CheckpointFound, CheckpointPublished, Lost, MachinesLost
from trainmover.controller.state import Incident, Kind, Outcome, Phase
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

FOLDER = "/kept"


def checkpoint(step: int, machines: int, nproc: int, *, torch: str = "2") -> m.Checkpoint:
    """Of which each rank's state is in two files."""
    ranks = [Rank(rank) for rank in range(machines * nproc)]
    states = {r: [m.Written(f"{step}/{r}.{n}", 7, f"{r}") for n in range(2)] for r in ranks}
    recorded = [
        m.Recorded(
            rank=rank, step=Step(3), trace="t0", digest=f"d{rank}", bytes=1, length=0,
        )
        for rank in ranks
    ]  # fmt: skip
    return m.Checkpoint(
        folder=FOLDER, run_id="before", step=Step(step), epoch=Epoch(7), argv=[], module=False,
        script="", machines=machines, nproc=nproc, torch=torch, trainmover="1", python="3",
        states=states, records={}, compiled={}, recorded=recorded,
    )  # fmt: skip


class Course:
    """found: what all go on from. after: slot -> machine that has it then."""

    def __init__(self, chance: random.Random, *, begun: bool, torch: str = "2") -> None:
        self.chance = chance
        machines, standbys = chance.choice(((2, 1), (3, 2), (3, 1)))
        self.nproc = chance.choice((1, 1, 2))
        self.most = chance.choice((0, 1, 3))
        self.found = checkpoint(chance.randint(20, 60), machines, self.nproc, torch=torch)
        self.job = Staged(
            chance, machines=machines, standbys=standbys, nproc=self.nproc, wait_s=60,
            snapshot_every=0, checkpoint=FOLDER, restarts_max=self.most,
            resume=None if begun else self.found,
        )  # fmt: skip
        self.job.alike = False
        if begun:
            self.job.step = Step(self.found.step + chance.randint(0, 9))
            self.job.begins()
            event = CheckpointPublished(at_us=self.job.now_us, checkpoint=self.found)
            self.job.hear(event)
            self.job.told.clear()
        self.after = dict(enumerate(self.job.names[:machines]))

    @property
    def one(self) -> Incident:
        return self.job.job.incidents[-1]

    def are_bound(self) -> None:
        bound = {name: (order.slot, order.epoch) for name, order in self.job.orders(m.Bind)}
        if bound != {name: (slot, self.job.epoch) for slot, name in self.after.items()}:
            raise Violation(f"all join, {self.after} in epoch {self.job.epoch}: {bound}")

    def go_on(self) -> None:
        """From there, all at once."""
        job, found = self.job, self.found
        orders = dict(job.orders(m.Switch))
        if {*orders} != {*self.after.values()}:
            raise Violation(f"{self.after} are to switch: {orders}")
        for slot, name in self.after.items():
            ranks, order = job.ranks_of([slot]), orders[name]
            files = {
                rank: [f"{FOLDER}/{found.step}/{rank}.{part}" for part in range(2)]
                for rank in ranks
            }
            truth = m.Switch(
                epoch=job.epoch, committed=found.step, sources={}, records={}, back=True,
                files=files, buddies=order.buddies,
            )  # fmt: skip
            if order != truth or {*order.buddies} != {*ranks}:
                raise Violation(f"{name} reads {files}: {order}")

    def is_over(self) -> None:
        job, step = self.job, Step(self.found.step + 1)
        job.hears_all(job.each(self.after, m.Switched), "the switch")
        job.follows(dict.fromkeys(self.after.values(), m.Go(epoch=job.epoch)), "all have switched")
        row = m.Row(step=step, at_us=0, values={})
        facts = job.each(self.after, m.Committed, rows=[row], first=True)
        for said in self.chance.sample(facts, len(facts)):
            if self.one.outcome is not Outcome.OPEN:
                raise Violation(f"{said} is yet to come: {self.one}")
            job.hears(said)
        if self.one.outcome is not Outcome.DONE or job.job.committed != step:
            raise Violation(f"step {step} is made: {self.one}, {job.job.committed}")
        if options.way_of(self.one) != options.AGAIN:
            raise Violation(f"all have started again: {options.way_of(self.one)}")


def _from_before(chance: random.Random) -> None:
    """Another run has left it; what it has recorded need not be again."""
    torch = chance.choice(("2", "2", "2", "9"))
    course = Course(chance, begun=False, torch=torch)
    job, found = course.job, course.found
    if torch != "2":
        job.ends("The checkpoint was written with torch 9; 2 is installed.")
        return
    course.are_bound()
    one, known = course.one, job.job
    said = (one.kind, one.rung, one.step, one.machine, one.ranks, one.epoch, one.outcome)
    truth = (Kind.RECOVERY, 3, found.step, None, (), job.epoch, Outcome.OPEN)
    if said != truth or f"after step {found.step} of run before" not in one.cause:
        raise Violation(f"{truth}: {one}")
    marks = (one.marks["heard"], one.marks["detect"])
    if marks != (job.now_us, job.now_us) or known.phase is not Phase.RUNNING:
        raise Violation(f"it goes on since {job.now_us}: {one}, {known.phase}")
    steps = (known.committed, known.checkpointed, known.checkpoint, job.epoch)
    if steps != (found.step, found.step, found, found.epoch + 1) or not known.all_recorded:
        raise Violation(f"the job is at step {found.step}, behind epoch 7: {steps}")
    if [*known.attached] != [*job.ranks]:
        raise Violation(f"all have called attach() before: {known.attached}")
    job.hears_all(job.park(course.after), "the boundary")
    course.go_on()
    course.is_over()


def _what_is_left(chance: random.Random) -> None:
    """What a machine held is nowhere else. One that turns out to be damaged is not taken again,
    and costs no restart."""
    course = Course(chance, begun=True)
    job, made = course.job, course.job.step
    slot = chance.choice([*course.after])
    name = course.after[slot]
    rank = slot * course.nproc
    job.goes_on()
    lost = Lost(machine=name, why="it is gone", heard_us=job.now_us)
    job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
    _drains(course, made)
    if not course.most:
        job.ends(f"it is gone, and no other rank holds the state of rank {rank}.")
        job.ends("has used its 0 restarts (--max-restarts).")
        job.ends(f"--resume {FOLDER}")
        return
    _looks(course, frozenset())
    one = course.one
    if one.rung != 3 or f"holds the state of rank {rank}" not in one.why_rung:
        raise Violation(f"nobody has what {name} had: {one}")
    _finds(course, made)
    course.go_on()
    if chance.random() < 0.5:
        course.is_over()
        return
    said = m.Interrupted(rank=Rank(0), epoch=job.epoch, reason="it is", unusable=course.found.step)
    job.hears((course.after[0], 0, said))
    _drains(course, made)
    _looks(course, frozenset({course.found.step}))
    course.found = checkpoint(course.found.step - 9, len(course.after), course.nproc)
    _finds(course, made)
    course.go_on()
    course.is_over()


def _drains(course: Course, made: Step) -> None:
    job = course.job
    trains = {
        slot: name
        for slot, name in enumerate(job.job.seats)
        if name in job.job.machines and job.job.change and slot not in job.job.change.joiners
    }
    records = {rank: [Step(made + 1)] for rank in map(Rank, job.ranks)}
    held = m.VaultHeld(epoch=job.epoch, records=records)
    asked = holding(job.job)
    vaults: list[Said] = [(name, None, held) for name in job.job.machines if name in asked]
    where = job.each(trains, m.Position, committed=made, gate=Step(0))
    job.hears_all([*vaults, *where], "where ranks stood")


def _looks(course: Course, unusable: frozenset[Step]) -> None:
    """For one that is whole, while all get fresh processes but who has begun nothing."""
    job, change = course.job, course.job.job.change
    if change is None or {*change.joiners} != {*course.after}:
        raise Violation(f"all join: {change}")
    course.after = {slot: change.joiners[slot] for slot in sorted(change.joiners)}
    asked = [one for one in job.told if isinstance(one, FindCheckpoint)]
    if asked != [FindCheckpoint(job.epoch, unusable)]:
        raise Violation(f"one is looked for that is whole, but {unusable}: {asked}")
    started = {name for name, _ in job.orders(m.StartWorkers)}
    if started != {*course.after.values()}:
        raise Violation(f"{course.after} get fresh processes: {started}")
    if job.orders(m.Leave):
        raise Violation(f"their processes are ended anyway: {job.told}")
    for name in started:
        job.catches_up(name)
    course.are_bound()


def _finds(course: Course, made: Step) -> None:
    """Before all are parked or after that."""
    job, found = course.job, course.found
    early = course.chance.random() < 0.5
    facts = job.park(course.after)
    event = CheckpointFound(
        at_us=job.now_us, epoch=job.epoch, checkpoint=found, damaged=[]
    )  # fmt: skip
    late = msgspec.structs.replace(event, epoch=Epoch(job.epoch - 1), checkpoint=None)
    job.goes_on()
    job.hear(late)
    if job.end() is not None:
        raise Violation(f"{late} was looked for before: {job.end()}")
    if early:
        job.hear(event)
        job.hears_all(facts, "the boundary")
    else:
        for said in facts:
            job.hears(said)
            job.follows({}, "it is not known where all go on")
        job.goes_on()
        job.hear(event)
    one, known = course.one, job.job
    said_of = (one.step, one.redone, known.committed, known.checkpointed, known.checkpoint)
    if said_of != (found.step, made - found.step, found.step, found.step, found):
        raise Violation(f"all go on after step {found.step}: {one}, {said_of}")


def play(chance: random.Random) -> None:
    """One of them."""
    chance.choice((_from_before, _what_is_left, _what_is_left))(chance)
