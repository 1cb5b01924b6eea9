# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that a job writes, and with which it ends: which cut becomes one, what is in it, what
is tried when, and what is said where none could be written."""

import random

from courses.trained import SECOND_US, Trained
from trainmover.controller.effects import FindCheckpoint, GiveUpCheckpoint, Publish
from trainmover.controller.events import (
    CheckpointFailed,
    CheckpointFound,
    CheckpointPublished,
    Lost,
    MachineJoined,
    MachinesLost,
    MoveRequested,
    StopRequested,
)
from trainmover.controller.state import Phase
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.protocol.checkpoint import published_name
from trainmover.simulator.happenings import Violation

FOLDER, EVERY = "/kept", 10
INTERRUPTED = 130


class Course:
    """newest: step of the newest checkpoint; 0: there is none."""

    def __init__(self, chance: random.Random, *, folder: str = FOLDER, **knobs: object) -> None:
        self.chance = chance
        known: dict[str, object] = {
            "machines": 3, "standbys": chance.choice((0, 1)), "nproc": chance.choice((1, 2)),
            "snapshot_every": 5, "checkpoint": folder, "checkpoint_every": EVERY,
        }  # fmt: skip
        self.job = Trained(chance, **{**known, **knobs})
        self.job.alike = False
        self.job.trains()
        self.newest = 0

    def told(self) -> list[m.WriteCheckpoint]:
        """What all with ranks, and nobody else, were told to write."""
        orders = self.job.orders(m.WriteCheckpoint)
        if orders and [name for name, _ in orders] != [*self.job.job.seats]:
            raise Violation(f"all with ranks are to write: {orders}")
        self.job.told.clear()
        return [order for _, order in orders[:1]]

    def place(self, rank: int) -> tuple[MachineId, int]:
        return self.job.job.seats[rank // self.job.nproc], rank % self.job.nproc

    def cut(self, step: int) -> None:
        for rank in self.job.ranks:
            name, local = self.place(rank)
            said = m.Snapped(
                rank=Rank(rank), epoch=self.job.job.epoch, step=Step(step), vault=f"{name}:1",
                bytes=7, cost_us=10, step_us=100_000,
            )  # fmt: skip
            self.job.says(name, local, said)

    def begins(self, step: int, *, due: bool) -> None:
        """A cut is there; it is written if it is due."""
        self.job.told.clear()
        self.cut(step)
        told = self.told()
        if not due and not told:
            return
        if not due or not told or (told[0].step, told[0].folder) != (step, FOLDER):
            raise Violation(f"the cut of step {step} is due: {due}; to be written is {told}")
        if told[0].epoch != self.job.job.epoch:
            raise Violation(f"{told} is of epoch {self.job.job.epoch}")

    def write(self, step: int, *, refused: int | None = None) -> m.Checkpoint | None:
        """All ranks do; what is to be published then."""
        ranks = self.chance.sample([*self.job.ranks], len(self.job.ranks))
        for at, rank in enumerate(ranks):
            if any(isinstance(one, Publish) for one in self.job.told):
                raise Violation(f"ranks {ranks[at:]} have yet to write step {step}")
            if self.chance.random() < 0.2:
                self.job.says(
                    *self.place(rank), self._wrote(rank, step, epoch=self.job.job.epoch - 1)
                )
            why = "the disk is full" if rank == refused else ""
            self.job.says(*self.place(rank), self._wrote(rank, step, refused=why))
            if rank == refused:
                return None
        published = [one.checkpoint for one in self.job.told if isinstance(one, Publish)]
        if len(published) != 1:
            raise Violation(f"all have written step {step}: {published}")
        (checkpoint,) = published
        self._has_all(checkpoint, step)
        return checkpoint

    def _wrote(self, rank: int, step: int, *, refused: str = "", epoch: int = -1) -> m.Wrote:
        return m.Wrote(
            rank=Rank(rank), step=Step(step), refused=refused,
            epoch=self.job.job.epoch if epoch < 0 else Epoch(epoch),
            state=[m.Written(f"{rank}.state", 10 + rank, f"digest {rank}")],
            record=m.Written(f"{rank}.record", 5, "r") if rank % 2 else None,
        )  # fmt: skip

    def _has_all(self, checkpoint: m.Checkpoint, step: int) -> None:
        job, folder = self.job, published_name(Step(step))
        states = {
            Rank(r): [m.Written(f"{folder}/{r}.state", 10 + r, f"digest {r}")] for r in job.ranks
        }
        records = {r for r in job.ranks if r % 2}
        said = (checkpoint.step, checkpoint.epoch, checkpoint.states, {*checkpoint.records})
        if said != (step, job.job.epoch, states, records) or checkpoint.torch != "2":
            raise Violation(f"the checkpoint of step {step} is {checkpoint}")
        spec = job.job.spec
        shape = (checkpoint.machines, checkpoint.nproc, checkpoint.run_id, checkpoint.folder)
        if shape != (spec.machines, spec.nproc, spec.run_id, FOLDER):
            raise Violation(f"the checkpoint of step {step} is {checkpoint}")
        if [one.rank for one in checkpoint.recorded] != [*job.ranks]:
            raise Violation(f"first steps are recorded of {checkpoint.recorded}")

    def publish(self, checkpoint: m.Checkpoint) -> None:
        self.newest = checkpoint.step
        self.job.told.clear()
        self.job.hear(CheckpointPublished(at_us=self.job.now_us, checkpoint=checkpoint))
        if self.job.job.checkpoint != checkpoint or self.job.job.writing is not None:
            raise Violation(f"{checkpoint} is there, known is {self.job.job.checkpoint}")

    def gives_up(self, step: int) -> None:
        gone = [one for one in self.job.told if isinstance(one, GiveUpCheckpoint)]
        if [(one.step, one.epoch) for one in gone] != [(step, self.job.job.epoch)]:
            raise Violation(f"what was written of step {step} is to go: {gone}")
        if self.job.job.writing is not None:
            raise Violation(f"step {step} is given up, and is written")


def _one_after_the_other(chance: random.Random) -> None:
    """A cut behind each multiple is written, also if the one before could not be."""
    course = Course(chance)
    course.begins(9, due=False)
    course.begins(12, due=True)
    how = chance.choice(("well", "refused", "failed", "well"))
    if how == "refused":
        course.write(12, refused=course.job.ranks[-1])
        course.gives_up(12)
    else:
        checkpoint = course.write(12)
        assert checkpoint is not None
        course.job.told.clear()
        course.cut(15)
        if course.told():
            raise Violation("two are written at once")
        if how == "failed":
            at_us = course.job.now_us
            course.job.hear(
                CheckpointFailed(at_us=at_us, step=Step(12), epoch=course.job.job.epoch, why="full")
            )
            if course.job.job.checkpoint is not None or course.job.job.writing is not None:
                raise Violation("it could not be published, and is there")
        else:
            course.publish(checkpoint)
    course.begins(19, due=False)
    course.begins(20, due=True)
    checkpoint = course.write(20)
    assert checkpoint is not None
    course.publish(checkpoint)
    course.begins(27, due=False)
    if chance.random() < 0.5:
        done = m.Finished(rank=Rank(0), step=Step(31), code=0, digest="d", attached=True)
        course.job.rank_says(0, done)
        course.begins(31, due=False)


def _broken_off(chance: random.Random) -> None:
    """Members change: what some have written goes, and what others have by now in the place of the
    newest cut is none; the next one is written."""
    course = Course(chance, standbys=1)
    job = course.job
    job.settles()
    course.begins(12, due=True)
    job.says(*course.place(0), course._wrote(0, 12))
    course.begins(21, due=False)
    job.hear(MoveRequested(at_us=job.now_us, request="m", machine=chance.choice(job.job.seats)))
    job.step = Step(22)
    job.log.clear()
    job.settles()
    gone = [(one.step, one.epoch) for one in job.log if isinstance(one, GiveUpCheckpoint)]
    if gone != [(12, job.job.epoch - 1)] or job.job.writing is not None:
        raise Violation(f"what was written of step 12 is to go: {gone}, {job.job.writing}")
    if any(isinstance(getattr(one, "order", None), m.WriteCheckpoint) for one in job.log):
        raise Violation("one process of step 21 is no member any more, and that is written")
    course.begins(25, due=True)
    checkpoint = course.write(25)
    assert checkpoint is not None
    course.publish(checkpoint)


def _stopped(chance: random.Random) -> None:
    """Somebody stops the job, and may wait for one more."""
    folder = chance.choice((FOLDER, FOLDER, FOLDER, ""))
    course = Course(chance, folder=folder)
    job = course.job
    if folder and chance.random() < 0.5:
        course.begins(12, due=True)
        checkpoint = course.write(12)
        assert checkpoint is not None
        course.publish(checkpoint)
        course.begins(15, due=False)
    waits_us = chance.choice((0, 5 * SECOND_US))
    until_us = job.now_us + waits_us if waits_us or chance.random() < 0.5 else 0
    trains = _is_under_way(course) if chance.random() < 0.2 else True
    stop = StopRequested(
        at_us=job.now_us, code=INTERRUPTED, why="somebody has interrupted it", until_us=until_us
    )
    job.told.clear()
    job.hear(stop)
    if not waits_us or not folder or not trains:
        _has_ended(course, "somebody has interrupted it")
        return
    if job.orders(m.WriteCheckpoint):
        raise Violation(f"what was there before is no news: {job.told}")
    asked = job.orders(m.KeepSnapshots)
    if [name for name, _ in asked] != [*job.job.seats] or any(not o.now for _, o in asked):
        raise Violation(f"a snapshot is wanted now: {asked}")
    if job.end() is not None:
        raise Violation(f"it may wait {waits_us} us, and has ended: {job.end()}")
    kept = f"The checkpoint of step {course.newest} is there." if course.newest else "begins anew"
    match chance.choice(("saves", "saves", "late", "fails", "lost", "again", "over")):
        case "saves":
            course.begins(18, due=True)
            checkpoint = course.write(18)
            assert checkpoint is not None
            course.publish(checkpoint)
            _has_ended(course, "The checkpoint of step 18 is there.\n--resume goes on from it.")
        case "late":
            job.passes(waits_us - 1)
            if job.end() is not None:
                raise Violation(f"{waits_us} us are not over: {job.end()}")
            job.passes(1)
            _has_ended(course, kept)
        case "fails":
            course.begins(18, due=True)
            course.write(18, refused=0)
            _has_ended(course, kept)
        case "lost":
            gone = Lost(machine=job.names[1], why="its link has ended", heard_us=job.now_us)
            job.hear(MachinesLost(at_us=job.now_us, lost=[gone]))
            _has_ended(course, kept)
        case "again":
            job.hear(stop)
            _has_ended(course, "somebody has interrupted it")
        case "over":
            for rank in job.ranks:
                _finishes(course, rank)
            job.passes(waits_us)
            if job.end() is not None:
                raise Violation(f"all scripts are over, and processes have yet to end: {job.end()}")


def _finishes(course: Course, rank: int) -> None:
    done = m.Finished(rank=Rank(rank), step=Step(14), code=0, digest="d", attached=True)
    course.job.says(*course.place(rank), done)


def _is_under_way(course: Course) -> bool:
    """Members change, or the script of one rank is over: there is no next step of all."""
    job = course.job
    if course.chance.random() < 0.5:
        cut = m.Interrupted(rank=Rank(0), epoch=job.job.epoch, reason="reset by peer")
        job.says(*course.place(0), cut)
    else:
        _finishes(course, 0)
    return False


def _has_ended(course: Course, words: str, *, code: int = INTERRUPTED) -> None:
    end = course.job.end()
    if end is None or end.code != code or words not in end.text:
        raise Violation(f"the job was to end with {code}, {words!r}: {end}")
    if course.job.job.phase is not Phase.ENDED or course.job.job.code != code:
        raise Violation(f"the job has ended: {course.job.job.phase}, {course.job.job.code}")


def _from_disk(chance: random.Random) -> None:
    """What two machines held alone is lost: all go back to the newest checkpoint that is whole."""
    course = Course(chance, wait_s=60)
    job = course.job
    course.begins(12, due=True)
    checkpoint = course.write(12)
    assert checkpoint is not None
    course.publish(checkpoint)
    gone = job.names[:2]
    lost = [Lost(machine=name, why="its link has ended", heard_us=job.now_us) for name in gone]
    for number in range(len(job.names), len(job.names) + 2):
        _joins(job, MachineId(f"m{number + 1}"))
    job.settles()
    job.step = Step(14)
    job.told.clear()
    job.hear(MachinesLost(at_us=job.now_us, lost=lost))
    job.log.clear()
    job.rests(1)
    asked = [one for one in job.log if isinstance(one, FindCheckpoint)]
    if len(asked) != 1 or job.job.change is None or not job.job.change.disk:
        raise Violation(f"what {gone} held is on no machine: {asked}, {job.job.change}")
    found = chance.choice((checkpoint, None))
    damaged = [] if found is not None else ["12/0.state is damaged"]
    event = CheckpointFound(
        at_us=job.now_us, epoch=asked[0].epoch, checkpoint=found, damaged=damaged
    )
    old = CheckpointFound(
        at_us=job.now_us, epoch=Epoch(asked[0].epoch - 1), checkpoint=None, damaged=[]
    )
    job.hear(old)
    if job.end() is not None:
        raise Violation(f"what was looked for before is nowhere, and that counts: {job.end()}")
    job.told.clear()
    job.hear(event)
    if found is None:
        _has_ended(course, f"no checkpoint in {FOLDER} is whole.", code=1)
        _has_ended(course, "12/0.state is damaged", code=1)
        return
    one, change = job.job.incidents[-1], job.job.change
    if (one.rung, one.step) != (3, 12) or change is None or change.committed != 12:
        raise Violation(f"all go back to step 12: {one}, {change}")
    made = (one.failed[0] - 1 if one.failed else 14) - 12
    if one.redone != made or job.job.committed != 12 or job.job.checkpointed != 12:
        raise Violation(f"{made} steps are made again: {one}, {job.job.committed}")


def _joins(job: Trained, name: MachineId) -> None:
    job.names.append(name)
    job.hear(
        MachineJoined(at_us=job.now_us, machine=name, standby=True, vault=f"{name}:1", host=name)
    )


def play(chance: random.Random) -> None:
    """One of them."""
    chance.choice((_one_after_the_other, _broken_off, _stopped, _stopped, _from_disk))(chance)
