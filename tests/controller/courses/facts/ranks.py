# SPDX-License-Identifier: Apache-2.0
"""One rank that passes gates and is told of epochs, each as it may be: once, again, late, or
overtaken by a newer one. It commits what all commit, stands where it says, and follows the newest.
"""

import random
from collections.abc import Callable

from trainmover.errors import StateMismatch, UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol import messages as m
from trainmover.rank.standing import NOT_YET, Standing, Unwind
from trainmover.simulator.happenings import Violation

RANK = Rank(3)


class Course:
    """step: that is committed; epoch: in force; ordered: the newest of which it was told."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.rank = Standing()
        self.step, self.epoch, self.ordered = 0, 2, 2
        if self.rank.position(RANK, 9) is not None:
            raise Violation("it has no rank yet, and says where it stands")
        self.rank.begin(Epoch(2))

    @property
    def next(self) -> int:
        """One that nobody has heard of."""
        return max(self.ordered, self.epoch) + 1

    def stands(self, gate: int = 0) -> None:
        one = self.rank.position(RANK, 9)
        truth = m.Position(
            rank=RANK, epoch=Epoch(self.ordered), committed=Step(self.step), gate=Step(gate),
            finished=self.rank.finished, patience_ms=9,
        )  # fmt: skip
        if one != truth or self.rank.epoch != self.epoch:
            raise Violation(f"it stands at {truth}, in epoch {self.epoch}, and says {one}")
        if self.rank.pending is not (self.ordered > self.epoch):
            raise Violation(f"epoch {self.ordered} was ordered, {self.epoch} is in force")

    def gate(self, *, pause: int = 0, cut: bool = False) -> None:
        """One step more."""
        step = Step(self.step + 1)
        if self.rank.enter_gate(step, drains=True) or self.rank.gate:
            raise Violation("what a drained collective has left is entered into a gate")
        if not self.rank.enter_gate(step, drains=False):
            raise Violation("nothing is ordered, and it enters no gate")
        self.stands(step)
        if self.chance.random() < 0.05 and step > 1:
            words = f"Rank {RANK} is in step {step}, another in step"
            for at in ({"newest": step + 1}, {"oldest": step - 1}):
                other = next(iter(at.values()))
                _raises(UserError, lambda at=at: self._passes(step, **at), f"{words} {other}.")  # type: ignore[misc]
        if not self._passes(step, pause=pause, cut=cut):
            raise Violation("all were in the gate, and it does not commit")
        self.step = step
        self.stands()
        if late := not cut and self.chance.random() < 0.3:  # They agree after it.
            self.rank.agree_on_cut(Step(step - 1))
            self.rank.agree_on_cut(step)
        cut |= late
        taken = [self.rank.cut_here(), self.rank.cut_here()]
        if taken != [step if cut else 0, 0]:
            raise Violation(f"a snapshot after step {step}: {cut}, and it takes {taken}")

    def _passes(
        self, step: Step, *, newest: int = 0, oldest: int = 0, pause: int = 0, cut: bool = False
    ) -> bool:
        return self.rank.pass_gate(
            RANK, step, newest=Step(newest or step), oldest=Step(oldest or step),
            pause=Epoch(pause), cut=cut,
        )  # fmt: skip

    def interrupt(self, epoch: int) -> None:
        if not self.rank.interrupt(Epoch(epoch)):
            raise Violation(f"epoch {epoch} is new, and is no news")
        self.ordered = epoch
        if self.rank.interrupt(Epoch(epoch)) or self.rank.interrupt(Epoch(epoch - 1)):
            raise Violation(f"epoch {epoch} was ordered before, and is news")

    def recovery(self) -> None:
        """In the middle of a step, or in its gate; maybe twice. All commit it, or nobody does."""
        step, inside = Step(self.step + 1), self.chance.random() < 0.5
        if inside and not self.rank.enter_gate(step, drains=False):
            raise Violation("nothing is ordered, and it enters no gate")
        epoch = self.next
        self.interrupt(epoch)
        if self.chance.random() < 0.3:
            epoch += 1
            self.interrupt(epoch)
        self.stands(step if inside else 0)
        if self.rank.enter_gate(step, drains=False) or self._passes(step):
            raise Violation(f"epoch {epoch} is ordered, and the gate is passed")
        if self.rank.judged(RANK, step) is not NOT_YET:
            raise Violation("nobody has judged yet")
        commits = inside and self.chance.random() < 0.6
        last = Step(step if commits else self.step)
        self.rank.obey(m.Verdict(epoch=Epoch(epoch - 1), committed=step))
        if self.rank.judged(RANK, step) is not NOT_YET:
            raise Violation("a verdict of an epoch before counts")
        if not inside and self.chance.random() < 0.2:
            self.rank.obey(m.Verdict(epoch=Epoch(epoch), committed=step))
            _raises(StateMismatch, lambda: self.rank.judged(RANK, step))
        self.rank.obey(m.Verdict(epoch=Epoch(epoch), committed=last))
        if self.rank.judged(RANK, step) is not commits:
            raise Violation(f"step {step} commits: {commits}")
        self.step = last
        self.stands()
        self._switches(epoch)

    def _switches(self, epoch: int, *, pausing: bool = False) -> None:
        """Between two steps, whatever newer one may overtake it."""
        target = self.rank.target(RANK, drains=False, pausing=pausing)
        if target != epoch:
            raise Violation(f"it is to switch to {epoch}, and goes to {target}")
        if self.rank.next_switch(Epoch(epoch)) is not NOT_YET:
            raise Violation("nobody has said with whom yet")
        self.rank.obey(_switch(epoch - 1, self.step))
        if self.rank.next_switch(Epoch(epoch)) is not NOT_YET:
            raise Violation("an order of an epoch before counts")
        order = _switch(epoch, self.step)
        self.rank.obey(order)
        if self.rank.next_switch(Epoch(epoch)) is not order:
            raise Violation(f"{order} is to be followed")
        self.rank.obey(m.Go(epoch=Epoch(epoch)))
        if self.rank.in_force(Epoch(epoch)) is not NOT_YET:
            raise Violation(f"{epoch} is in force before members were exchanged")
        self.rank.connected(Epoch(epoch))
        if self.chance.random() < 0.3:
            self.interrupt(epoch + 1)
            if self.rank.next_switch(Epoch(epoch)) is not None:
                raise Violation(f"{epoch + 1} has overtaken {epoch}")
            self.rank.obey(m.Go(epoch=Epoch(epoch)))
            if self.rank.in_force(Epoch(epoch)) is not False:
                raise Violation(f"{epoch + 1} has overtaken {epoch}, which is in force")
            self.stands()
            self.rank.obey(m.Verdict(epoch=Epoch(epoch + 1), committed=Step(self.step)))
            self._switches(epoch + 1)
            return
        self.rank.obey(m.Go(epoch=Epoch(epoch - 1)))
        if self.rank.in_force(Epoch(epoch)) is not NOT_YET:
            raise Violation(f"an older epoch goes, and {epoch} is in force")
        self.rank.obey(m.Go(epoch=Epoch(epoch)))
        if self.rank.in_force(Epoch(epoch)) is not True:
            raise Violation(f"{epoch} is in force")
        self.epoch = epoch
        self.stands()

    def move(self) -> None:
        """A pause is asked for, agreed at a gate, and taken back or not."""
        epoch = self.next
        if self.rank.pause_flag or self.rank.paused:
            raise Violation("nobody has asked for a pause")
        self.rank.obey(m.PauseAt(epoch=Epoch(epoch)))
        self.rank.obey(m.PauseAt(epoch=Epoch(epoch - 1)))
        if self.rank.pause_flag != epoch or self.rank.paused:
            raise Violation(f"a pause for {epoch} is to be asked for: {self.rank.pause_flag}")
        self.gate(pause=epoch)
        if not self.rank.paused or self.rank.target(RANK, drains=False, pausing=False) is not None:
            raise Violation("it stops at a fetch, and nowhere else")
        if self.chance.random() < 0.4:
            self.rank.obey(m.Discard(epoch=Epoch(epoch)))
            back = self.rank.paused or self.rank.pause_flag
            if back or self.rank.next_switch(Epoch(epoch)) is not None:
                raise Violation(f"the pause for {epoch} was taken back")
            if self.rank.target(RANK, drains=False, pausing=True) is not None:
                raise Violation(f"the pause for {epoch} was taken back, and it stops")
            self.ordered_after(epoch)
            return
        if self.rank.target(RANK, drains=True, pausing=True) is not NOT_YET:
            raise Violation("its collectives drain, and it goes on")
        self._switches(epoch, pausing=True)

    def ordered_after(self, epoch: int) -> None:
        """What is ordered next is newer."""
        self.interrupt(epoch + 1)
        self.rank.obey(m.Verdict(epoch=Epoch(epoch + 1), committed=Step(self.step)))
        self._switches(epoch + 1)

    def wrong(self) -> None:
        """The job has committed what this rank has not."""
        self.interrupt(self.next)
        if self.rank.target(RANK, drains=False, pausing=True) is not NOT_YET:
            raise Violation("nobody has judged, and it goes on")
        self.rank.obey(m.Verdict(epoch=Epoch(self.ordered), committed=Step(self.step + 1)))
        _raises(StateMismatch, lambda: self.rank.target(RANK, drains=False, pausing=False))
        self.rank.obey(m.Verdict(epoch=Epoch(self.ordered), committed=Step(self.step)))
        self._switches(self.ordered)

    def gives_up(self) -> None:
        """Its ranks go to another machine: it gives its state, or nobody wants that of it."""
        epoch = self.next
        self.rank.obey(m.PauseAt(epoch=Epoch(epoch)))
        self.gate(pause=epoch)
        self.rank.obey(m.Leave(epoch=Epoch(epoch - 1)))
        if self.rank.next_switch(Epoch(epoch)) is not NOT_YET or self.rank.leaves(Epoch(epoch)):
            raise Violation("what it was told to leave is over")
        if self.chance.random() < 0.5:
            self.rank.obey(_switch(epoch, self.step))
            self.rank.connected(Epoch(epoch))
            if self.rank.in_force(Epoch(epoch)) is not NOT_YET:
                raise Violation("what it was told to leave is over")
        self.rank.obey(m.Leave(epoch=Epoch(epoch)))
        if not self.rank.leaves(Epoch(epoch)) or self.rank.leaves(Epoch(epoch + 1)):
            raise Violation(f"it is to leave {epoch}, and no later one")
        if self.rank.goes_back:
            raise Violation(f"it is to leave {epoch}, and no step is undone")
        if overtaken := self.chance.random() < 0.3:
            self.interrupt(epoch + 1)
        _raises(Unwind, lambda: self.rank.next_switch(Epoch(epoch)))
        _raises(Unwind, lambda: self.rank.in_force(Epoch(epoch)))
        self.rank.end_run()
        self._joins(epoch + overtaken)

    def leaves(self) -> None:
        """It lives elsewhere now, or all go back: its run is over, and another may begin."""
        epoch = self.next
        self.interrupt(epoch)
        if self.rank.leaves() or self.rank.goes_back:
            raise Violation("nobody has said that it is to leave")
        back = self.chance.random() < 0.5
        if back:
            self.rank.obey(m.Leave(epoch=Epoch(epoch)))
            if not self.rank.goes_back or not self.rank.leaves():
                raise Violation("it is to leave, instead of a verdict")
            _raises(Unwind, lambda: self.rank.judged(RANK, Step(self.step + 1)))
            _raises(Unwind, lambda: self.rank.target(RANK, drains=True, pausing=False))
        else:
            self.rank.obey(m.Exit())
            self.is_over(epoch)
            self.rank.exit = False
        self.rank.end_run()
        if self.rank.position(RANK, 9) is not None or self.rank.gate or self.rank.finished:
            raise Violation("its run is over, and it says where it stands")
        self._joins(epoch)

    def is_over(self, epoch: int) -> None:
        """Whatever it waits for."""
        _raises(Unwind, lambda: self.rank.judged(RANK, Step(self.step + 1)))
        _raises(Unwind, lambda: self.rank.target(RANK, drains=False, pausing=False))
        _raises(Unwind, lambda: self.rank.next_switch(Epoch(epoch)))
        _raises(Unwind, lambda: self.rank.in_force(Epoch(epoch)))
        _raises(Unwind, lambda: self.rank.next_to_join(Epoch(epoch), Epoch(self.epoch)))
        if self.rank.after_the_end() is not False:
            raise Violation("it is to exit, and waits")

    def _joins(self, before: int) -> None:
        """As another rank, with its state."""
        epoch = before + 1

        def join() -> object:
            return self.rank.next_to_join(Epoch(epoch), Epoch(before))

        if join() is not NOT_YET:
            raise Violation("nobody has said what it is to take")
        if self.chance.random() < 0.3:
            self.rank.obey(m.Leave(epoch=Epoch(epoch)))
            _raises(Unwind, join)
            epoch, before = epoch + 1, before + 1
        self.rank.obey(_switch(before, 7))
        if join() is not NOT_YET:
            raise Violation("it joins in an epoch that is over")
        order = _switch(epoch, 7)
        self.rank.obey(order)
        if join() is not order:
            raise Violation(f"{order} is to be followed")
        if self.rank.next_to_join(Epoch(epoch), Epoch(epoch)) is not NOT_YET:
            raise Violation("it has followed that in vain, and does so again")
        self.step = 7
        self.rank.become(Step(7))
        self.rank.connected(Epoch(epoch))
        self.rank.obey(m.Go(epoch=Epoch(epoch)))
        self.epoch = epoch
        if self.rank.in_force(Epoch(epoch)) is not True or not self.rank.live:
            raise Violation(f"it has the rank in epoch {epoch}")
        self.stands()


def _switch(epoch: int, committed: int) -> m.Switch:
    return m.Switch(
        epoch=Epoch(epoch), committed=Step(committed), sources={}, records={}, buddies={}
    )


def _raises(error: type[BaseException], act: Callable[[], object], words: str = "") -> None:
    try:
        act()
    except error as raised:
        if words not in str(raised):
            raise Violation(f"{raised} is to say {words!r}") from None
        return
    raise Violation(f"{error.__name__} was to be raised")


def play(chance: random.Random) -> None:
    """Some steps, and what may happen between them."""
    try:
        _goes(Course(chance), chance)
    except Unwind:
        raise Violation("it unwinds, and nobody has told it to") from None
    except (StateMismatch, UserError) as error:
        raise Violation(f"it is wrong about itself: {error}") from None


def _goes(course: Course, chance: random.Random) -> None:
    for _ in range(chance.randint(2, 8)):
        for _ in range(chance.randrange(4)):
            course.gate(cut=chance.random() < 0.3)
        chance.choice(
            (
                course.recovery,
                course.recovery,
                course.move,
                course.wrong,
                course.leaves,
                course.gives_up,
            )
        )()
    course.gate()
    if course.rank.finish() != course.step or not course.rank.finished:
        raise Violation(f"its script is through after step {course.step}")
    if course.rank.after_the_end() is not NOT_YET:
        raise Violation("all wait for the end")
    course.interrupt(course.next)
    if course.rank.after_the_end() is not True:
        raise Violation("members change, and it is to take part")
