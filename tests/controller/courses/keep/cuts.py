# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a few ranks that pass gate after gate: which are due, and which each of them holds.

The first is taken at once, the next so many steps later, or at each multiple where they are for
checkpoints alone. None is taken before the one before is complete on all ranks; what is spoiled on
one goes on all; of what is complete the newest stays, whatever else happens.
"""

import random
from dataclasses import dataclass

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol import messages as m
from trainmover.rank.cuts import BUSY, VOID, WANTED, Cuts, Put
from trainmover.simulator.happenings import Violation

VAULT, OTHER = "v1", "v2"


@dataclass(frozen=True)
class Shot:
    rank: int
    step: int


class Course:
    """
    taken     step of the newest that is not complete; 0: there is none
    complete  of the newest that is; kept: that one, while processes hold it
    turned    so many processes further is each rank now than it was then
    last      of the newest that was taken of these ranks; 0: none was
    wants     one is asked for
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.every, self.multiple = chance.choice(((5, 0), (7, 0), (0, 6), (0, 1), (5, 4), (0, 0)))
        self.ranks = [Rank(rank) for rank in range(chance.choice((1, 3)))]
        self.cuts: list[Cuts[Shot]] = [Cuts(self.multiple) for _ in self.ranks]
        self.alone = self.every == 0 and self.multiple > 0 and chance.random() < 0.3
        for one in self.cuts:
            if self.every:
                one.keep(self.every, now=False)
            if self.alone:
                one.keep_own()
        self.step = self.chance.choice((0, 0, 5, 12))  # Where a job that is resumed begins.
        self.taken = self.complete = self.kept = self.turned = self.last = 0
        self.since: int | None = None
        self.wants = False
        self.epoch = Epoch(1)
        self.own_comes = self.alone

    @property
    def own(self) -> int:
        """Step of what processes hold of the ranks that they have now; 0: nothing."""
        return 0 if self.turned else self.kept

    @property
    def gives(self) -> bool:
        """Whether vaults are to have any: not where they are for checkpoints alone."""
        return bool(self.every or self.alone or not self.multiple)

    def gate(self) -> None:
        """All pass it, and take one if it is due."""
        self.step += 1
        flags = [
            one.flag(rank, Step(self.step)) for one, rank in zip(self.cuts, self.ranks, strict=True)
        ]
        if self.since is None:
            self.since = self.step
        expected = BUSY if self.taken else WANTED if self._is_due() else 0
        if {*flags} != {expected}:
            raise Violation(f"the flags at step {self.step} are {flags}, {expected} was due")
        for one in self.cuts:
            if one.agreed(expected):
                raise Violation("something is void")
        if expected == WANTED:
            self.take()
        self.holds()

    def _is_due(self) -> bool:
        if self.wants or (self.every and (not self.last or self.step - self.last >= self.every)):
            return True
        since = max(self.last, (self.since or 0) - 1)
        return bool(self.multiple) and self.step // self.multiple > since // self.multiple

    def take(self) -> None:
        for one, rank in zip(self.cuts, self.ranks, strict=True):
            put = one.took(
                Shot(rank, self.step), epoch=self.epoch, vault=VAULT, cost_us=5, step_us=9
            )
            to = VAULT if self.gives else ""
            said = (put.snapshot.step, put.epoch, put.vault, put.cost_us, put.step_us, put.further)
            if said != (self.step, self.epoch, to, 5, 9, ""):
                raise Violation(f"what was taken at {self.step} goes to {to!r}: {put}")
            if one.waits_for_own is not self.own_comes or one.first_of_own() is not self.own_comes:
                raise Violation(f"the first of what ranks hold alone is waited for, once: {put}")
            self._is_given(one, put)
        self.taken = self.last = self.step
        self.wants = self.own_comes = False

    def _is_given(self, one: Cuts[Shot], put: Put[Shot]) -> None:
        one.further = self.chance.choice((one.further, "", VAULT, OTHER))
        refused = "it is full" if self.chance.random() < 0.2 else ""
        fact, more = one.given(put, refused, 77)
        if fact is None or (fact.refused, fact.bytes, fact.step) != (refused, 77, self.step):
            raise Violation(f"{put} was given, refused: {refused!r}, and it is said {fact}")
        goes_on = one.further == OTHER or (one.further == VAULT and put.vault != VAULT)
        if (more is not None) is not (goes_on and not refused):
            raise Violation(f"{put}, and one more to {one.further!r}: {more}")
        if more is not None:
            if one.given(more, "it is full", 77) != (None, None):
                raise Violation("that one more copy was refused is news")
            again, none = one.given(more, "", 77)
            if none is not None or again is None or again.further != one.further:
                raise Violation(f"one more copy is at {one.further}: {again}, {none}")

    def holds(self) -> None:
        """Each the newest complete one, and one that is on its way."""
        held = {step for step in (self.kept, self.taken) if step}
        for one in self.cuts:
            if {*one.held} != held or one.complete != self.complete:
                raise Violation(f"at step {self.step} {held} are held, and here {[*one.held]}")

    def completes(self) -> None:
        if not self.taken:
            return
        self.complete = self.kept = self.taken
        self.taken = self.turned = 0
        for one, rank in zip(self.cuts, self.ranks, strict=True):
            one.completed(Step(self.complete))
            one.further = ""
            self._follows(one, rank)
        self.holds()

    def _follows(self, one: Cuts[Shot], rank: Rank) -> None:
        """Another buddy is to have the newest complete one, once; and who gives it to whom."""
        put = one.follow(rank, "v3", Epoch(self.epoch + 1))
        if (put is not None) is not self.gives:
            raise Violation(f"another buddy is to have step {self.complete}: {put}")
        if put is not None:
            if put != Put(Shot(rank, self.complete), Epoch(self.epoch + 1), "v3", 0, 0):
                raise Violation(f"another buddy is to have step {self.complete}: {put}")
            one.given(put, "", 1)
            if one.follow(rank, "v3", self.epoch) is not None:
                raise Violation("the same buddy is to have the same once more")
            put = one.follow(rank, "v3", self.epoch, OTHER)
            more = one.given(put, "", 1)[1] if put is not None else None
            if more is None or more.further != OTHER:
                raise Violation(f"one copy more is to be at {OTHER}: {put}, {more}")
            one.further = ""
        there, none = (one.give(rank, Step(at), "v4", self.epoch) for at in (self.complete, 10**6))
        if there != Put(Shot(rank, self.complete), self.epoch, "v4", 0, 0):
            raise Violation(f"what is held of step {self.complete} is given: {there}")
        told = m.Snapped(
            rank=rank, epoch=self.epoch, step=Step(10**6), vault="", bytes=0, cost_us=0, step_us=0,
            refused="its process does not have it",
        )  # fmt: skip
        if none != told:
            raise Violation(f"what is not held is given: {none}")
        if one.of(Rank(rank + 1), Step(self.complete)) is not None:
            raise Violation("what is held of one rank is another's")
        whole = Shot(rank, self.complete)
        if not one.mend(whole) or not one.has(whole) or one.mend(Shot(rank, 10**6)):
            raise Violation("what is held is held in the place of what was damaged, and no other")

    def spoils(self) -> None:
        """On one rank, which all hear at the next gate: it is void everywhere, and wanted again."""
        if not self.taken:
            return
        one, rank = self.cuts[0], self.ranks[0]
        shot = one.of(rank, Step(self.taken))
        if shot is None or not one.spoiled(shot) or one.spoiled(shot):
            raise Violation(f"what was taken at {self.taken} is spoiled once")
        if self.chance.random() < 0.3:
            self.change()  # All that is on its way is void anyhow.
            return
        self.step += 1
        flags = [
            cuts.flag(rank, Step(self.step))
            for cuts, rank in zip(self.cuts, self.ranks, strict=True)
        ]
        if flags != [VOID] + [BUSY] * (len(self.cuts) - 1):
            raise Violation(f"one is spoiled, and the flags are {flags}")
        for cuts in self.cuts:
            cuts.agreed(VOID)
        self.taken, self.last, self.wants = 0, self.own, True
        self.holds()

    def change(self) -> None:
        """Members do: what is not complete goes."""
        self.epoch = Epoch(self.epoch + 1)
        if self.every:
            self.every = self.chance.choice((5, 7))
        for one in self.cuts:
            one.changed(self.every)
        self.taken, self.last = 0, self.own
        self.holds()
        for one, rank in zip(self.cuts, self.ranks, strict=True):
            if not self.own and one.follow(rank, "v3", self.epoch, one.further) is not None:
                raise Violation(f"nothing is held of rank {rank}, and another buddy is to have it")

    def exchange(self) -> None:
        """Each process has another rank from now on, and what it holds is of the one before."""
        self.cuts.append(self.cuts.pop(0))
        self.turned = (self.turned + 1) % len(self.cuts)
        self.change()

    def goes_back(self) -> None:
        """To the newest that is complete, or to one before it, from a disk."""
        self.change()
        step = self.complete if self.chance.random() < 0.5 else max(self.complete - 3, 0)
        for one in self.cuts:
            one.back_to(Step(step))
        if step < self.complete:
            self.complete, self.kept, self.last = step, 0, 0
        self.step, self.since = step, None
        self.holds()
        if self.chance.random() < 0.3:
            self.anew()

    def anew(self) -> None:
        for one in self.cuts:
            one.clear()
            if one.every or one.held:
                raise Violation(f"the job begins anew, and {one.every}, {one.held} are left")
            self._begins(one)
        self.step = self.taken = self.complete = self.kept = self.last = 0
        self.since, self.own_comes = None, self.alone
        self.wants = False
        self.holds()

    def _begins(self, one: Cuts[Shot]) -> None:
        one.asked = False
        one.keep(self.every, now=False)
        self.own_comes = self.alone
        if self.alone:
            one.keep_own()

    def asks(self) -> None:
        """One is wanted at the next gate, whatever is due."""
        for one in self.cuts:
            one.keep(self.every, now=True)
            one.keep(self.every, now=False)
        self.wants = True


def play(chance: random.Random) -> None:
    """Gates, and what may happen between them."""
    course = Course(chance)
    for _ in range(chance.choice((3, 12))):
        for _ in range(chance.choice((1, 3, 8))):
            course.gate()
        chance.choice(
            (
                course.completes,
                course.completes,
                course.completes,
                course.spoils,
                course.change,
                course.exchange,
                course.goes_back,
                course.anew,
                course.asks,
            )
        )()
