# SPDX-License-Identifier: Apache-2.0
"""Snapshots that ranks are told to keep, and the cuts that come of what they say of them."""

import math
import random

from courses.trained import Trained
from trainmover.controller.effects import Send
from trainmover.controller.events import Lost, MachinesLost
from trainmover.controller.state import Cut
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

FIRST_EVERY, SHARE = 5, 0.01


class Course:
    """vaults, further: rank -> who has its snapshot of the newest cut."""

    def __init__(self, chance: random.Random, every: int | None, *, alike: bool) -> None:
        self.chance = chance
        self.job = Trained(
            chance, machines=3, standbys=1, nproc=chance.choice((1, 2)), wait_s=60,
            snapshot_every=every,
        )  # fmt: skip
        self.job.alike = alike
        self.job.trains()
        self.step = 10
        self.vaults: dict[Rank, str] = {}
        self.further: dict[Rank, str] = {}

    def said(self, rank: int, step: int, **its: object) -> m.Snapped:
        known: dict[str, object] = {
            "rank": Rank(rank), "epoch": self.job.job.epoch, "step": Step(step),
            "vault": f"m{rank % 3 + 1}:1", "bytes": 100 + rank, "cost_us": 2000 + rank,
            "step_us": 100_000,
        }  # fmt: skip
        return m.Snapped(**known | its)  # type: ignore[arg-type]

    def keeps(self) -> list[tuple[int, bool]]:
        """What all that have ranks, and nobody else, were told to keep."""
        orders = [e for e in self.job.log + self.job.told if isinstance(e, Send)]
        kept = [(e.machine, e.order) for e in orders if isinstance(e.order, m.KeepSnapshots)]
        seats = {*self.job.job.seats}
        each = [(order.every, order.now) for name, order in kept if name == self.job.job.seats[0]]
        if len(kept) != len(each) * len(seats) or {name for name, _ in kept} - seats:
            raise Violation(f"all of {seats} are to keep the same: {kept}")
        self.job.log.clear()
        self.job.told.clear()
        return each

    def cut(self, step: int, *, refused: int | None = None) -> None:
        """All ranks say that theirs is safe; with the last the cut is there."""
        job, before = self.job, self.job.job.cut
        ranks = self.chance.sample([*job.ranks], len(job.ranks))
        two = self.chance.random() < 0.5
        for at, rank in enumerate(ranks):
            if job.job.cut is not before:
                raise Violation(f"a cut is there, and {ranks[at:]} have yet to say theirs is safe")
            old = self.said(rank, step - 5)
            if self.chance.random() < 0.2 and at:
                job.rank_says(rank, old)
            if self.chance.random() < 0.2:
                job.rank_says(rank, self.said(rank, step, epoch=Epoch(job.job.epoch - 1)))
            more: dict[str, object] = {"further": "m4:1"} if two else {}
            if rank == refused:
                more = {"refused": "it is full"}
            job.rank_says(rank, self.said(rank, step, **more))
        self.vaults = {r: f"m{r % 3 + 1}:1" for r in map(Rank, job.ranks)}
        self.further = dict.fromkeys(self.vaults, "m4:1") if two else {}
        if refused is not None:
            self.vaults[Rank(refused)] = ""
            self.further.pop(Rank(refused), None)
        self.is_there(step)
        heard = sorted(name for name, order in job.orders(m.CutComplete) if order.step == step)
        if heard != sorted(job.job.machines):
            raise Violation(f"the cut of step {step} is complete, and {heard} hear of it")

    def is_there(self, step: int) -> None:
        job = self.job
        workers = {Rank(r): "{}/{}".format(*job.at(r)) for r in job.ranks}
        truth = Cut(
            step=Step(step), vaults=self.vaults, workers=workers, further=self.further,
            bytes=sum(100 + r for r in job.ranks), cost_us=2000 + job.ranks[-1],
        )  # fmt: skip
        if job.job.cut != truth or job.job.snapped:
            raise Violation(f"the newest cut is {truth}; known is {job.job.cut}")


def _wanted(chance: random.Random) -> None:
    """Whether any are kept, and how often."""
    every, alike = chance.choice((None, None, 0, 7)), chance.random() < 0.5
    course = Course(chance, every, alike=alike)
    kept = course.keeps()
    needed = every is None and not alike
    expected = [(every or FIRST_EVERY, every is None)] if every or needed else []
    if kept != expected:
        raise Violation(f"alike: {alike}, asked for: {every}; to be kept are {kept}")
    if every is None and alike:
        changed = chance.choice(("", "12 tensors"))
        job = course.job
        job.rank_says(
            1, m.BetweenSteps(rank=Rank(1), step=Step(4), where="line 9", changed=changed)
        )
        if course.keeps() != [(FIRST_EVERY, True)] or "line 9" not in job.job.between:
            raise Violation(f"what is done between steps needs snapshots: {job.job.between!r}")
        if ("12 tensors" in job.job.between) is not bool(changed):
            raise Violation(f"{changed!r} changes between steps: {job.job.between!r}")


def _cuts(chance: random.Random) -> None:
    """One after the other; the first tells how often they are worth it, where nobody said."""
    every = chance.choice((None, 7))
    course = Course(chance, every, alike=False)
    course.keeps()
    job = course.job
    course.cut(10)
    cost_us = 2000 + job.ranks[-1]
    tuned = max(1, math.ceil(cost_us / (SHARE * 100_000)))
    if course.keeps() != ([(tuned, False)] if every is None else []):
        raise Violation(f"a snapshot costs {cost_us} us: every {tuned} steps, asked for {every}")
    if chance.random() < 0.5:
        course.cut(17)
        if course.keeps():
            raise Violation("how often is known by now")
    _goes_elsewhere(course, job.job.cut.step if job.job.cut is not None else 0)


def _goes_elsewhere(course: Course, step: int) -> None:
    """One gets another vault, or one more, or a vault is gone."""
    chance, job = course.chance, course.job
    rank = Rank(chance.choice([*job.ranks]))
    match chance.randrange(4):
        case 0:
            job.rank_says(rank, course.said(rank, step, vault="m9:1"))
            course.vaults[rank] = "m9:1"
        case 1:
            job.rank_says(rank, course.said(rank, step, further="m9:1"))
            course.further[rank] = "m9:1"
        case 2:
            job.rank_says(rank, course.said(rank, step, vault="m4:1"))
            course.vaults[rank] = "m4:1"
            course.further.pop(rank, None)
        case 3:
            lost = Lost(machine=MachineId("m4"), why="its link has ended", heard_us=job.now_us)
            job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
            course.further = {}
    course.is_there(step)


def _refused(chance: random.Random) -> None:
    """One vault has no room: the cut is there, since the process has it; no other follows."""
    course = Course(chance, chance.choice((None, 7)), alike=False)
    course.keeps()
    rank = chance.choice([*course.job.ranks])
    course.cut(10, refused=rank)
    if course.keeps()[:1] != [(0, False)]:
        raise Violation(f"a vault has no room for rank {rank}, and snapshots are kept on")
    why = course.job.job.no_snapshots
    if why != f"of rank {rank}: it is full" or course.job.job.snapshot_every:
        raise Violation(f"a vault has no room for rank {rank}: {why!r}")


def play(chance: random.Random) -> None:
    """One of them."""
    chance.choice((_wanted, _cuts, _cuts, _refused))(chance)
