# SPDX-License-Identifier: Apache-2.0
"""Where a rank stands, what it was told, and what follows from both. Pure.

    orders    interrupt  obey
    gate      enter_gate  pass_gate  judged          the step commits for everybody, or is run again
    boundary  target  next_switch  connected  in_force      between two steps: members change
    lives     begin  next_to_join  become  end_run   a process has one rank after another, or none

Each call is one moment. That "no newer epoch was ordered" and what follows from it happen in the
same one makes the controller's verdict binding: whoever has passed a gate says so in its position.
Where threads call (`worker.standing`), a lock is held for each call; the simulator has none.

What somebody waits for is asked again after each order: the answer is `NOT_YET` until there is one.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, assert_never

from trainmover.errors import StateMismatch, Unwind, UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import (
    Discard,
    Exit,
    Go,
    Leave,
    PauseAt,
    Position,
    Switch,
    Verdict,
)

NONE = Epoch(0)


class Waiting(Enum):
    """What is waited for was not said so far."""

    NOT_YET = "not yet"


NOT_YET: Final = Waiting.NOT_YET
NotYet = Literal[Waiting.NOT_YET]

Told = Verdict | Switch | Go | Leave | Discard | PauseAt | Exit
"""Orders that are noted down, and looked at when the rank comes by."""


@dataclass
class Standing:
    """Of one process.

    live        whether it holds its rank (a joiner only from `Go` on)
    epoch       membership in force here
    ordered     newest epoch an Interrupt spoke of; greater than `epoch` while one is pending
    committed   last step whose update is applied, or is bound to be
    gate        step in whose gate the rank stands with its record safe; 0: none
    switched    epoch whose members this rank has exchanged: `Go` puts it in force
    back        newest epoch for which it was told to leave instead of a verdict
    pause_asked epoch whose pause flag is raised at the next gate
    pause_at    epoch whose pause was agreed at a gate: stop at the next fetch
    cut_at      step after which all ranks take a snapshot, as agreed at its gate
    finished    its script is through
    """

    live: bool = False
    epoch: Epoch = NONE
    ordered: Epoch = NONE
    committed: Step = Step(0)
    gate: Step = Step(0)
    verdict: Verdict | None = None
    switch: Switch | None = None
    switched: Epoch = NONE
    leave: Epoch = NONE
    back: Epoch = NONE
    discarded: Epoch = NONE
    pause_asked: Epoch = NONE
    pause_at: Epoch = NONE
    cut_at: Step = Step(0)
    finished: bool = False
    exit: bool = False

    # --- what it is told --------------------------------------------------------------------------

    def interrupt(self, epoch: Epoch) -> bool:
        """A newer epoch is ordered, and the position is fixed. False if that is no news."""
        if epoch <= self.ordered:
            return False
        self.ordered, self.verdict = epoch, None
        return True

    def position(self, rank: Rank, patience_ms: int) -> Position | None:
        """What to say in the moment of an interruption; None: it holds no rank."""
        if not self.live:
            return None
        return Position(
            rank=rank,
            epoch=self.ordered,
            committed=self.committed,
            gate=self.gate,
            finished=self.finished,
            patience_ms=patience_ms,
        )

    def obey(self, order: Told) -> None:
        """Note it down; whoever waits is to look again."""
        match order:
            case Verdict():
                self.verdict = order
            case Switch():
                self.switch = order
            case Go(epoch=epoch):
                self._go(epoch)
            case Leave(epoch=epoch):
                self.leave = max(self.leave, epoch)
                if self.pending:
                    self.back = max(self.back, epoch)
            case Discard(epoch=epoch):
                self.discarded = max(self.discarded, epoch)
            case PauseAt(epoch=epoch):
                self.pause_asked = max(self.pause_asked, epoch)
            case Exit():
                self.exit = True
            case _:
                assert_never(order)

    def _go(self, epoch: Epoch) -> None:
        """Put an epoch in force, unless a newer one was ordered.

        As it is told and not when the script's thread wakes: from this moment on the controller
        counts on the rank's position, and an `Interrupt` may come before that.
        """
        if epoch == self.switched and epoch >= self.ordered:
            self.epoch, self.live, self.cut_at = epoch, True, Step(0)

    # --- what follows -----------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether a newer epoch was ordered than the one in force."""
        return self.ordered > self.epoch

    @property
    def paused(self) -> bool:
        """Whether a pause was agreed and not taken back."""
        return self.pause_at > max(self.epoch, self.discarded)

    @property
    def pause_flag(self) -> Epoch:
        """What to raise at the next gate; 0: nothing."""
        return self.pause_asked if self.pause_asked > max(self.epoch, self.discarded) else NONE

    @property
    def goes_back(self) -> bool:
        """Whether it is to leave instead of a verdict, to run the script again from a cut: also if
        a newer epoch was ordered right after it was told, for in that one it is a joiner."""
        return self.pending and self.back > self.epoch

    def leaves(self, bound_for: Epoch = NONE) -> bool:
        """Whether it was told to leave the epoch in force, or the one that it is bound for."""
        return self.leave >= max(bound_for, self.epoch + 1)

    # --- the gate ---------------------------------------------------------------------------------

    def enter_gate(self, step: Step, *, drains: bool) -> bool:
        """Its record is safe. False if what it has computed may be garbage.

        drains: collectives end with what their buffers hold
        """
        if self.ordered > self.epoch or drains:
            return False
        self.gate = step
        return True

    def pass_gate(
        self, rank: Rank, step: Step, *, newest: Step, oldest: Step, pause: Epoch, cut: bool
    ) -> bool:
        """All ranks were in a gate, and the step commits. False: interrupted, the verdict decides.

        newest, oldest: of the steps in which they were. pause, cut: what they have agreed upon
        """
        if self.ordered > self.epoch:
            return False
        if newest != oldest:
            raise _uneven(rank, step, newest if newest != step else oldest)
        self.committed, self.gate = step, Step(0)
        self.pause_at = max(self.pause_at, pause)
        if cut:
            self.cut_at = step
        return True

    def judged(self, rank: Rank, step: Step) -> bool | NotYet:
        """Whether the step that was cut short commits, or is run again. Raises Unwind."""
        verdict = self._verdict_of_ordered()
        if verdict is None:
            if self.exit or self.goes_back:
                raise Unwind
            return NOT_YET
        entered, self.gate = self.gate == step, Step(0)
        if verdict.committed < step:
            return False
        if not entered:
            raise _mismatch(
                f"Step {step} was ordered to commit, but rank {rank} was not in its gate."
            )
        self.committed = step
        return True

    def _verdict_of_ordered(self) -> Verdict | None:
        """The verdict of the newest interruption, once it is out."""
        verdict = self.verdict
        out = self.pending and verdict is not None and verdict.epoch == self.ordered
        return verdict if out else None

    def agree_on_cut(self, step: Step) -> None:
        """All ranks have agreed after its commit; unless members have changed since."""
        if self.committed == step:
            self.cut_at = step

    def cut_here(self) -> Step:
        """The step after which a snapshot is to be taken now, once; 0: none is."""
        if self.cut_at != self.committed:
            return Step(0)
        self.cut_at = Step(0)
        return self.committed

    # --- the boundary -----------------------------------------------------------------------------

    def target(self, rank: Rank, *, drains: bool, pausing: bool) -> Epoch | NotYet | None:
        """Between two steps: the epoch to switch to, an interruption's once its verdict is out, or
        a pause's; None: train on. Raises Unwind if the rank lives elsewhere, or the job is done.

        pausing: at a fetch, where a pause stops the rank too
        """
        if self.exit or self.goes_back:
            raise Unwind
        verdict = self._verdict_of_ordered()
        if verdict is not None:
            if verdict.committed != self.committed:
                raise _mismatch(
                    f"Rank {rank} has committed step {self.committed}, "
                    f"the job step {verdict.committed}."
                )
            return self.ordered
        if self.pending or drains:
            return NOT_YET
        return self.pause_at if pausing and self.paused else None

    def next_switch(self, epoch: Epoch) -> Switch | NotYet | None:
        """The order to switch; None if a newer epoch came first or the pause was taken back."""
        if self.leave >= epoch or self.exit:
            raise Unwind
        if self.ordered > epoch or self.discarded >= epoch:
            return None
        if self.switch is not None and self.switch.epoch == epoch:
            return self.switch
        return NOT_YET

    def connected(self, epoch: Epoch) -> None:
        """It has exchanged the members that change: from here on `Go` puts the epoch in force."""
        self.switched = epoch

    def in_force(self, epoch: Epoch) -> bool | NotYet:
        """Whether the epoch is in force now; False if a newer one was ordered.

        Raises Unwind for a leaver, also if a newer epoch was ordered right after it was told: that
        one is not about it any more.
        """
        if self.epoch >= epoch:
            return self.epoch == epoch
        if self.leave >= epoch or self.exit:
            raise Unwind
        return False if self.ordered > epoch else NOT_YET

    def finish(self) -> Step:
        """The script is through. The last step that has committed."""
        self.finished = True
        return self.committed

    def after_the_end(self) -> bool | NotYet:
        """The script is done, the job may not be: whether members change; False: it is over."""
        if self.exit:
            return False
        return True if self.pending else NOT_YET

    # --- lives ------------------------------------------------------------------------------------

    def begin(self, epoch: Epoch) -> None:
        """The job starts, and this process has a rank from the first line of its script on."""
        self.live, self.epoch = True, epoch
        self.ordered = max(self.ordered, epoch)

    def next_to_join(self, bound_for: Epoch, done: Epoch) -> Switch | NotYet:
        """A joiner stands in the sandbox: the order to take the rank's place. Raises Unwind.

        done: the epoch whose order it has followed, in vain
        """
        if self.leave >= bound_for or self.exit:
            raise Unwind
        oldest = max(bound_for, done + 1, self.ordered)  # An earlier life had others.
        if self.switch is not None and self.switch.epoch >= oldest:
            return self.switch
        return NOT_YET

    def become(self, committed: Step) -> None:
        """A joiner has the rank's state after this step."""
        self.committed, self.gate = committed, Step(0)

    def end_run(self) -> None:
        """The run of the script is over: what is said from here on is no position of a rank."""
        self.live = self.finished = False
        self.committed = self.gate = Step(0)


def _uneven(rank: Rank, step: Step, other: Step) -> UserError:
    return UserError(
        f"Rank {rank} is in step {step}, another in step {other}.",
        means="The ranks have called a different number of steps; the job ends.",
        do="Every rank must call the functions marked @job.step equally often.",
    )


def _mismatch(happened: str) -> StateMismatch:
    return StateMismatch(
        happened,
        means="The job must not go on with this rank.",
        do="Please report this with the job's journal.",
    )
