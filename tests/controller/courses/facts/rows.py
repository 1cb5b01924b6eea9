# SPDX-License-Identifier: Apache-2.0
"""Rows of one rank, as it commits and tells them: each is told once, in order and in time, and none
that its machine may take with it is out of the record."""

import random
from statistics import median

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Row, Took
from trainmover.rank.told import Rows
from trainmover.simulator.happenings import Violation

MS = 1_000_000
FLUSH_MS, LONG_MS, ARRIVES_MS = 250, 100, 500
KEPT, KEPT_ROWS, RECENT = 2, 1024, 64


class Course:
    """waiting: steps that are not told; batches: when each was told, and its steps."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.ranks = chance.choice((4, 4, 3000))
        self.rows: Rows[int] = Rows(self.ranks)
        self.now_ms = chance.randrange(10_000, 90_000)
        self.step, self.epoch = 0, Epoch(1)
        self.waiting: list[int] = []
        self.took: list[int] = []
        self.batches: list[tuple[int, list[int]]] = []
        self.gaps_ms: list[int] = []
        self.told_ms = 0
        self.last_ms: int | None = None
        self.first = True
        self.first_gap_ms: int | None = None
        self.rows.first_of = self.epoch

    def commit(self, after_ms: int, *, unheard: bool) -> None:
        """One step more."""
        self.now_ms += after_ms
        self.step += 1
        row, disturbed = Row(step=Step(self.step), at_us=0, values={}), self.chance.random() < 0.1
        took = None if disturbed else Took(step=row.step, own_us=self.step, cpu_us=1)
        gap_ms = None if self.last_ms is None else self.now_ms - self.last_ms
        self.last_ms = self.now_ms
        self.waiting.append(self.step)
        if self.first:
            self.first_gap_ms = gap_ms
        else:
            self.gaps_ms += [] if gap_ms is None else [gap_ms]
            self.took += [] if disturbed else [self.step]
        long_ms = max(LONG_MS, self.ranks // 10)
        due = self.first or (gap_ms or 0) >= long_ms or self.now_ms - self.told_ms > FLUSH_MS
        if self.rows.enter(row, self.step, self.now_ms * MS, took) is not due:
            raise Violation(f"step {self.step} after {gap_ms} ms is to be told at once: {due}")
        if due:
            self.tell(unheard=unheard)

    def tell(self, *, unheard: bool) -> None:
        fact = self.rows.say_rows(Rank(1), self.epoch, self.now_ms * MS, unheard=unheard)
        if not self.waiting:
            if fact is not None:
                raise Violation(f"all was told, and once more: {fact}")
            return
        if fact is None or [row.step for row in fact.rows] != self.waiting:
            raise Violation(f"steps {self.waiting} were to be told, and {fact}")
        if [one.own_us for one in fact.took] != self.took:
            raise Violation(f"of {self.took} it was to be told how long they took: {fact}")
        recent = self.gaps_ms[-RECENT:]
        usual_us = int(median(one * MS for one in recent)) // 1000 if recent else None
        gap_us = None if self.first_gap_ms is None else self.first_gap_ms * 1000
        said = (fact.first, fact.gap_us, fact.median_us)
        if said != (self.first, gap_us if self.first else None, usual_us):
            raise Violation(f"{said}: first {self.first}, gap {gap_us}, usual {usual_us}")
        self.batches.append((self.now_ms, self.waiting))
        self.told_ms, self.waiting, self.took = self.now_ms, [], []
        self.first, self.first_gap_ms = False, None
        self._forget(unheard=unheard)

    def _forget(self, *, unheard: bool) -> None:
        """What has arrived is no more in doubt; nor is all kept, if nobody hears it."""
        while len(self.batches) > KEPT:
            told_ms, _ = self.batches[0]
            many = sum(len(steps) for _, steps in self.batches) > KEPT_ROWS
            if not many and (unheard or self.now_ms - told_ms < ARRIVES_MS):
                return
            self.batches.pop(0)

    def is_kept(self) -> None:
        known = [step for _, steps in self.batches for step in steps] + self.waiting
        if self.rows.in_doubt != known:
            raise Violation(f"in doubt are {known}, and kept are {self.rows.in_doubt}")

    def epoch_begins(self) -> None:
        """The next row is the first of another one."""
        self.tell(unheard=False)
        self.epoch = Epoch(self.epoch + 1)
        self.rows.first_of, self.first = self.epoch, True

    def another_takes_it(self) -> None:
        """A joiner has what was in doubt, up to a step, and tells it all."""
        doubted = [Step(step) for step in self.rows.in_doubt]
        committed = self.step - self.chance.randrange(2)
        self.rows = Rows(self.ranks)
        self.rows.inherit(
            [(Row(step=step, at_us=0, values={}), step) for step in doubted], Step(committed)
        )
        self.waiting, self.step = [step for step in doubted if step <= committed], committed
        self.batches, self.took, self.gaps_ms, self.last_ms = [], [], [], None
        self.told_ms = 0
        self.rows.first_of, self.first = self.epoch, True

    def it_goes_back(self) -> None:
        """The same process runs the script again: the gap began with its last commit."""
        before, self.rows = self.rows, Rows(self.ranks)
        self.rows.go_on_from(before)
        self.rows.first_of, self.first = self.epoch, True
        self.step = max(0, self.step - 3)
        self.batches, self.waiting, self.took, self.told_ms = [], [], [], 0


def play(chance: random.Random) -> None:
    """Some hundred steps, now and then of another epoch, or in another process."""
    course = Course(chance)
    step_ms = chance.choice((1, 1, 20, 60, 120, 400))
    for _ in range(6):
        unheard = chance.random() < 0.3
        for _ in range(chance.choice((10, 80, 700 if step_ms == 1 else 80))):
            course.commit(step_ms if chance.random() < 0.95 else 7 * step_ms, unheard=unheard)
            course.is_kept()
        chance.choice((course.epoch_begins, course.another_takes_it, course.it_goes_back))()
        course.is_kept()
