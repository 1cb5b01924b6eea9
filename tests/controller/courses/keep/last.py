# SPDX-License-Identifier: Apache-2.0
"""Jobs that end with what is left of them, since nobody can take the place of who is lost: who
writes whose snapshot, from where, and what is said in the end.

Where each snapshot of the newest cut lies is known. As long as there is one of every rank, and a
process that can write, a checkpoint of it comes about, whoever else is lost meanwhile; each rank's
is written once, by its own process if that is there. Else the job ends at once, and says why.
"""

import random
from collections import Counter
from collections.abc import Iterable

from courses.keep.remains import Remains
from courses.trained import SECOND_US, Trained
from trainmover.controller.effects import Answer, GiveUpCheckpoint, Publish, Send
from trainmover.controller.events import (
    CheckpointFailed,
    CheckpointPublished,
    ControllerReturned,
    CordonRequested,
    DrainRequested,
    KillRequested,
    MachineJoined,
    StopRequested,
    StoreMoved,
)
from trainmover.controller.state import Phase
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

FOLDER = "/kept"
SAVE_US = 600 * SECOND_US
CUT, NEWER = 12, 17
WAIT_S = 20


class Course(Remains):
    """
    newest   step of the newest checkpoint; 0: there is none
    begun    epochs of what was to be written; begun_us: since when anything was
    """

    def __init__(self, chance: random.Random) -> None:
        self.wait_s = chance.choice((0, 0, WAIT_S))
        job = Trained(
            chance, machines=chance.choice((2, 3, 4)), standbys=1, nproc=chance.choice((1, 2)),
            snapshot_every=5, checkpoint=FOLDER, checkpoint_every=10, no_standby="checkpoint",
            wait_s=self.wait_s,
        )  # fmt: skip
        super().__init__(job)
        self.newest = self.epoch = self.begun_us = 0
        self.begun: list[Epoch] = []
        self.cause = ""

    # --- before -----------------------------------------------------------------------------------

    def saves(self) -> None:
        """The cut becomes a checkpoint, as ever."""
        job = self.job
        for rank in job.ranks:
            job.says(*job.at(rank), self._part(rank, rank, job.job.epoch))
        (checkpoint,) = self._published()
        job.hear(CheckpointPublished(at_us=job.now_us, checkpoint=checkpoint))
        self.newest = self.step

    def without_standby(self) -> None:
        """Somebody wants the only one to take no ranks; or it has those of another by now."""
        job = self.job
        if self.chance.random() < 0.3:
            name = self.chance.choice(job.job.seats)
            job.settles()
            job.step = Step(self.step)
            job.hear(DrainRequested(at_us=job.now_us, request="d", machines=[name]))
            job.rests(2)
            self.spare = name
        else:
            job.hear(CordonRequested(at_us=job.now_us, request="c", machine=self.spare))
        if self.spare in job.job.seats:
            raise Violation(f"{self.spare} is to have no ranks: {job.job.seats}")
        job.told.clear()

    # --- what is so -------------------------------------------------------------------------------

    def _why_not(self) -> str:
        """Why there can be no checkpoint of the newest cut; "" if there can be."""
        if not self.step:
            return "there was no snapshot of all ranks yet"
        if self.nowhere():
            return f"not every rank's snapshot of step {self.step} is left"
        return "" if self.live else "no process of the job is left that could write it"

    # --- what is heard ----------------------------------------------------------------------------

    def is_begun(self) -> bool:
        """What is to be written is told to all that have processes; False: the job has ended."""
        job = self.job
        if job.orders(m.Interrupt):
            raise Violation("nobody trains on, and ranks are to leave their step")
        if self.newest == self.step and self.step:
            self.ends("")
            return False
        if why := self._why_not():
            self.ends(why)
            return False
        orders = job.orders(m.WriteCheckpoint)
        if job.end() is not None or sorted(name for name, _ in orders) != sorted(self.live):
            raise Violation(f"{self.live} are to write: {orders}, {job.end()}")
        order = orders[0][1]
        if any(other != order for _, other in orders):
            raise Violation(f"all are to write the same: {orders}")
        if (order.step, order.folder) != (self.step, FOLDER) or order.epoch in self.begun:
            raise Violation(f"the cut of step {self.step} is to be written anew: {order}")
        if order.epoch != (self.begun[-1] if self.begun else job.job.epoch_last - 1) + 1:
            raise Violation(f"{order} has no number of its own: {self.begun}")
        self._is_dealt_out(order.foreign)
        self.begun_us = self.begun_us or job.now_us
        self.begun.append(order.epoch)
        self.epoch, self.written = order.epoch, set[int]()
        self.writer = {one.rank: int(one.writer) for one in order.foreign}
        if job.job.change is not None or job.job.phase is not Phase.ENDING:
            raise Violation(f"the job is about to end: {job.job.phase}, {job.job.change}")
        job.told.clear()
        return True

    def _is_dealt_out(self, foreign: list[m.Foreign]) -> None:
        job = self.job
        others = [rank for rank in job.ranks if not self.own(rank)]
        if [one.rank for one in foreign] != others:
            raise Violation(f"others are to write {others}: {foreign}")
        writers = Counter(int(one.writer) for one in foreign)
        able = [r for r in job.ranks if job.job.seats[r // job.nproc] in self.live]
        if {*writers} - {*able} or max(writers.values(), default=0) > -(-len(others) // len(able)):
            raise Violation(f"{able} are there, and {writers} write those of others")
        for one in foreign:
            rank, local = int(one.rank), one.rank % job.nproc
            vaults = [f"{name}:1" for name in self.kept(rank)]
            holds = self.process[rank]
            processes = [] if holds in self.down else [f"{holds}/{local}"]
            if (one.vaults, one.processes) != (vaults, processes):
                raise Violation(f"what rank {rank} held is in {vaults}, {processes}: {one}")
            there = {*job.job.seats, self.spare} - self.gone
            stored = {f"{name}:1" for name in there}
            told = [{*record.vaults} for record in one.records if record.rank == rank]
            dark = {f"{name}:1" for name in self.gone}
            if (
                len(told) != len(one.records)
                or len(told) != 1
                or stored - told[0]
                or told[0] & dark
            ):
                raise Violation(f"the record of rank {rank} may be in {stored}: {one.records}")

    def _part(self, rank: int, by: int, epoch: int, refused: str = "") -> m.Wrote:
        return m.Wrote(
            rank=Rank(rank), epoch=Epoch(epoch), step=Step(self.step), refused=refused,
            state=[m.Written(f"{rank}.state", 10 + rank, f"by {by}")],
        )  # fmt: skip

    def writes(self, ranks: Iterable[int], *, refused: str = "") -> None:
        for rank in ranks:
            if self._published():
                raise Violation(f"rank {rank} has yet to be written")
            by = self.writer.get(Rank(rank), rank)
            name = self.job.job.seats[by // self.job.nproc]
            fact = self._part(rank, by, self.epoch, refused)
            self.job.says(name, by % self.job.nproc, fact)
            self.written.add(rank)

    def _published(self) -> list[m.Checkpoint]:
        return [one.checkpoint for one in self.job.told if isinstance(one, Publish)]

    # --- the end ----------------------------------------------------------------------------------

    def comes_about(self) -> None:
        left = [rank for rank in self.job.ranks if rank not in self.written]
        self.writes(self.chance.sample(left, len(left)))
        published = self._published()
        if len(published) != 1 or [*published[0].states] != [*self.job.ranks]:
            raise Violation(f"all of step {self.step} is written: {published}")
        if (published[0].step, published[0].epoch) != (self.step, self.epoch):
            raise Violation(f"step {self.step} is written in {self.epoch}: {published}")
        if self.job.end() is not None:
            raise Violation(f"it is not published yet: {self.job.end()}")
        self.newest = self.step
        at_us = self.job.now_us
        self.job.hear(CheckpointPublished(at_us=at_us, checkpoint=published[0]))
        self.ends("")

    def ends(self, why_not: str) -> None:
        job, end = self.job, self.job.end()
        kept = f"The newest is that of step {self.newest}." if self.newest else "There is none."
        means = f"The job has ended with a checkpoint of step {self.newest}."
        if why_not:
            means = f"The job has ended without a last checkpoint: {why_not}. {kept}"
        do = "--resume goes on from it" if self.newest else "Start it again from the beginning"
        words = (self.cause, f".\n{means}\n{do}, once there are machines.")
        if end is None or end.code != 1 or any(one not in end.text for one in words):
            raise Violation(f"the job was to end, {words}: {end}")
        if job.orders(m.WriteCheckpoint) or job.job.phase is not Phase.ENDED or job.job.code != 1:
            raise Violation(f"the job has ended: {job.job.phase}, {job.told}")


def _before(course: Course) -> None:
    """Some cuts, of which one may be a checkpoint, or be on its way to be."""
    chance, job = course.chance, course.job
    if chance.random() < 0.1:
        return
    course.cut(CUT)
    if not job.orders(m.WriteCheckpoint):
        raise Violation(f"step {CUT} is due")
    if (how := chance.random()) < 0.3:
        job.says(*job.at(0), course._part(0, 0, job.job.epoch))
        return
    course.saves()
    if how < 0.8:
        course.cut(NEWER)


def _nobody_is_left(course: Course, names: list[MachineId]) -> None:
    """At once, or when nobody has come for as long as may be waited."""
    job, wait_s = course.job, course.wait_s
    course.cause = f"it is dark; {len(names)} machine{'s' * (len(names) > 1)} must be replaced"
    writing = job.job.writing
    given_up = [] if writing is None else [(writing.step, writing.epoch)]
    course.lose(names)
    if wait_s:
        if job.end() is not None or job.orders(m.WriteCheckpoint):
            raise Violation(f"{wait_s} s may be waited: {job.told}")
        job.told = [one for one in job.told if isinstance(one, GiveUpCheckpoint)]
        job.passes(wait_s * SECOND_US - 1)
        if job.end() is not None or job.orders(m.WriteCheckpoint):
            raise Violation(f"{wait_s} s are not over: {job.told}")
        job.passes(1)
        course.cause = f"none has come in {wait_s} s"
    if [(one.step, one.epoch) for one in job.told if isinstance(one, GiveUpCheckpoint)] != given_up:
        raise Violation(f"{given_up} was not written by all: {job.told}")


def play(chance: random.Random) -> None:
    """One job."""
    course = Course(chance)
    _before(course)
    course.without_standby()
    job, seats = course.job, course.job.job.seats
    if chance.random() < 0.3:
        name = chance.choice(seats)
        pid = job.job.machines[name].pids[0]
        job.agent_says(name, m.WorkerState(local_rank=0, pid=pid, state="stopped"))
    lost = chance.sample(seats, 2 if chance.random() < 0.2 else 1)
    _nobody_is_left(course, lost)
    if course.is_begun():
        _goes_on(course, chance.choice(("well", "lost", "lost", "late", "full", "stopped")))


def _goes_on(course: Course, how: str) -> None:
    chance, job = course.chance, course.job
    _is_of_no_account(course)
    if how == "lost":
        _one_more(course)
        return
    course.writes(chance.sample([*job.ranks], len(job.ranks) - 1))
    match how:
        case "well":
            course.comes_about()
        case "late":
            job.passes(course.begun_us + SAVE_US - 1 - job.now_us)
            if job.end() is not None or job.told:
                raise Violation(f"it may take a moment more: {job.told}")
            job.passes(1)
            course.ends("it took longer than 600 s")
        case "full" if chance.random() < 0.5:
            course.writes([0], refused="it is full")
            course.ends("rank 0: it is full")
        case "full":
            failed = CheckpointFailed(
                at_us=job.now_us, step=Step(course.step), epoch=Epoch(course.epoch), why="read only"
            )
            job.hear(failed)
            course.ends("read only")
        case "stopped":
            job.hear(StopRequested(at_us=job.now_us, code=130, why="enough", until_us=10**15))
            course.ends("enough")


def _is_of_no_account(course: Course) -> None:
    """Nothing follows from what is said of a job that trains, or in an epoch that is over."""
    chance, job = course.chance, course.job
    name, rank = chance.choice(course.live), Rank(0)
    job.says(name, 0, m.Interrupted(rank=rank, epoch=job.job.epoch, reason="reset by peer"))
    job.says(name, 0, course._part(0, 0, course.epoch - 1))
    job.hear(ControllerReturned(at_us=job.now_us))
    job.hear(StoreMoved(at_us=job.now_us, address="h:9"))
    new = MachineId("m9")
    job.hear(MachineJoined(at_us=job.now_us, machine=new, standby=True, vault="m9:1", host="m9"))
    if any(not isinstance(one, Send) or one.machine != new for one in job.told):
        raise Violation(f"the job is about to end: {job.told}")
    job.hear(KillRequested(at_us=job.now_us, request="k", machine=name))
    if [(one.ok, one.request) for one in job.told if isinstance(one, Answer)] != [(False, "k")]:
        raise Violation(f"the job is about to end, and {name} is to die: {job.told}")
    job.told.clear()
    job.passes(2 * SECOND_US)
    if job.told:
        raise Violation(f"nobody is waited for: {job.told}")


def _one_more(course: Course) -> None:
    """A machine, or a process on it, is lost while they write: others do."""
    chance, job = course.chance, course.job
    course.writes(chance.sample([*job.ranks], chance.randrange(len(job.ranks))))
    before = course.epoch
    name, pid = chance.choice(course.live), 0
    if chance.random() < 0.5:
        course.lose([chance.choice((name, course.spare))])
    else:
        pid = course.ends_process(name)
    gone = [(one.step, one.epoch) for one in job.told if isinstance(one, GiveUpCheckpoint)]
    if gone != [(course.step, before)]:
        raise Violation(f"what was begun in epoch {before} is given up: {gone}")
    if course.is_begun():
        if pid:
            course.ends_process(name, local=job.nproc - 1)
            course.ends_process(course.spare)
        if job.told:
            raise Violation(f"what has ended has nothing to write: {job.told}")
        course.comes_about()
