# SPDX-License-Identifier: Apache-2.0
"""Jobs whose ranks hold each what no other does, and all go back to the newest cut: from where each
rank takes its snapshot, which of them are given to a vault first, and when there is no way back."""

import random

from courses.keep.remains import FULL, Remains
from courses.trained import Trained
from trainmover.controller.effects import End, Send
from trainmover.controller.state import Outcome, Stage
from trainmover.ids import MachineId, Rank, Slot, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

CUT, STEP = 10, 14


class Job(Trained):
    """parks: whether machines come to where joiners wait."""

    parks = True

    def says(self, name: MachineId, local: int, fact: object) -> None:
        if self.parks or not isinstance(fact, m.Parked):
            super().says(name, local, fact)


class Course(Remains):
    """full: the rank whose vault had no room for its snapshot; None: all had."""

    job: Job

    def __init__(self, chance: random.Random) -> None:
        job = Job(
            chance, machines=chance.choice((3, 4)), standbys=2, nproc=chance.choice((1, 2)),
            snapshot_every=5, wait_s=60,
        )  # fmt: skip
        job.alike = False
        super().__init__(job)
        self.full: int | None = None
        job.settles()

    def is_given(self, name: MachineId) -> None:
        """Of those whose process alone has it, and that live, to the vaults of their machines."""
        job = self.job
        only = [rank for rank in job.ranks if not self.kept(rank) and self.own(rank)]
        expected: dict[MachineId, dict[int, str]] = {}
        for rank in only:
            here = job.at(rank)[0]
            expected.setdefault(here, {})[rank] = f"{here}:1"
        sent = [one for one in job.log if isinstance(one, Send)]
        orders = [
            (one.machine, one.order) for one in sent if isinstance(one.order, m.GiveSnapshots)
        ]
        said = {
            machine: {int(r): to for r, to in order.vaults.items()} for machine, order in orders
        }
        if said != expected or any(order.step != self.step for _, order in orders):
            raise Violation(f"{name} is gone, and {expected} are to be given: {orders}")
        for machine, ranks in expected.items():
            for rank in ranks:
                self._answers(machine, rank)

    def _answers(self, name: MachineId, rank: int) -> None:
        """It has room or not; without it the snapshot is nowhere any more."""
        refused = FULL if self.chance.random() < 0.3 else ""
        said = m.Snapped(
            rank=Rank(rank), epoch=self.job.job.epoch, step=Step(self.step), vault=f"{name}:1",
            bytes=7, cost_us=0, step_us=0, refused=refused,
        )  # fmt: skip
        self.job.says(name, rank % self.job.nproc, said)
        if refused:
            self.process.pop(rank)
        else:
            self.keeps[rank] = [name]

    def no_way_back(self, ranks: list[int]) -> None:
        end = next((one.text for one in self.job.log if isinstance(one, End)), "")
        words = f"the snapshot of rank {min(ranks)} was lost as well"
        if self.full is not None:
            words = f"snapshots were given up (of rank {self.full}: {FULL})"
        if words not in end or self.job.job.code != 1:
            raise Violation(f"the job was to end, {words!r}: {end!r}")


def play(chance: random.Random) -> None:
    """A machine is lost, or a process; later another one maybe, while all go back."""
    course = Course(chance)
    job = course.job
    if chance.random() < 0.3:
        course.full = chance.choice([*job.ranks])
    course.cut(CUT, full=course.full)
    job.step = Step(STEP)
    job.settles()
    job.log.clear()
    job.parks = False
    name = chance.choice(job.job.seats)
    if chance.random() < 0.3:
        course.ends_process(name)
    else:
        course.lose([name])
    gone = course.nowhere()
    job.settles()
    if gone:
        course.no_way_back(gone)
        return
    course.is_given(name)
    _goes_on(course)


def _goes_on(course: Course) -> None:
    job = course.job
    change, one = job.job.change, job.job.incidents[-1]
    if change is None or not change.back or change.stage is not Stage.BOUNDARY:
        raise Violation(f"all go back: {change}")
    if (one.rung, one.step, job.job.committed) != (2, CUT, CUT) or one.redone != STEP - CUT:
        raise Violation(f"all go back to step {CUT}: {one}, {job.job.committed}")
    job.parks = True
    lost = [rank for rank in job.ranks if not course.kept(rank) and not course.process.get(rank)]
    _all_park(course, change.joiners)
    if lost:
        course.no_way_back(lost)
        return
    _is_taken_from(course)
    if job.job.incidents[-1].outcome is not Outcome.DONE or job.job.change is not None:
        raise Violation(f"all have gone back: {job.job.incidents[-1]}")


def _all_park(course: Course, joiners: dict[Slot, MachineId]) -> None:
    job = course.job
    assert job.job.change is not None
    epoch = job.job.change.epoch
    for slot, name in joiners.items():
        for rank in job.job.spec.ranks(slot):
            parked = m.Parked(rank=rank, epoch=epoch, trace=job.trace(rank), bind_ms=1)
            job.says(name, rank % job.nproc, parked)
    job.settles()


def _is_taken_from(course: Course) -> None:
    """Vaults, the first one first; and its process, where that is."""
    job = course.job
    sent = [(e.machine, e.order) for e in job.log if isinstance(e, Send)]
    orders = [(name, order) for name, order in sent if isinstance(order, m.Switch)]
    told: set[int] = set()
    for _, order in orders:
        for rank, vaults in order.records.items():
            told.add(int(rank))
            if vaults != [f"{one}:1" for one in course.kept(rank)]:
                raise Violation(f"rank {rank} is in {course.kept(rank)}: {vaults}")
        for rank, sources in order.sources.items():
            told.add(int(rank))
            place = course.process.get(rank)
            if [one.address for one in sources] != [f"{place}/{rank % job.nproc}"]:
                raise Violation(f"the process of rank {rank} is on {place}: {sources}")
            if place in course.down:
                raise Violation(f"the process of rank {rank} is gone: {sources}")
    if told != {*job.ranks}:
        raise Violation(f"all take their snapshots: {told}")
