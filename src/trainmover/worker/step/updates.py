"""The updates of a step: every `optimizer.step()` of the script, as the runtime sees it.

The first one of a step is its gate. What comes behind the gate must be local; where it is not, the
job goes over to steps that are undone (see `undo`).
"""

from collections.abc import Callable

import torch

from trainmover.comm import groups
from trainmover.errors import StateMismatch
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Warned, WorkerFact
from trainmover.sandbox.record import STEPS
from trainmover.state.tracked import Tracked
from trainmover.worker.drill import Drills
from trainmover.worker.keep.first_steps import Recording
from trainmover.worker.step.gate import Gate
from trainmover.worker.step.undo import Listener, Undo

_COLLECTIVES = "collectives were made inside optimizer.step() or between two updates"
_SMALL_STATE = (
    "small tracked state that each rank has for itself was changed behind the gate, as "
    "buffers of an average of weights are (update it behind the step, not in it)"
)


class Updates:
    """Of one rank, for all its steps.

    A step goes begin_step, try_step, at_gate, passed, end_try, end_step; one that is aborted goes
    put_back, begin_again and from try_step on. The script's `enter` and `leave` come in between.

    count    calls of `optimizer.step()` so far, also outside of steps
    undo     what those of the step under way have changed
    tainted  whether what was computed since the last boundary may be garbage
    """

    def __init__(
        self,
        rank: Rank,
        *,
        tracked: Tracked,
        gate: Gate,
        recording: Recording,
        drills: Drills,
        tainted: Callable[[], bool],
        say: Callable[[WorkerFact], None],
    ) -> None:
        self.count = 0
        self.undo = Undo()
        self._rank = rank
        self._tracked = tracked
        self._gate = gate
        self._recording = recording
        self._drills = drills
        self._tainted = tainted
        self._say = say
        self._listener = Listener()
        self._step = Step(0)
        self._count_before = 0
        self._depth = 0
        self._undoes = False  # The step under way commits at its return.
        self._told_undo = self._told_gradients = False

    # --- the step they are made in ----------------------------------------------------------------

    def mode_settled(self) -> None:
        """What was so in an epoch before is no news."""
        self._told_undo = self._told_undo or self._gate.undo
        self._told_gradients = self._told_gradients or any(
            gradients.accumulate for gradients in self._tracked.gradients
        )

    def begin_step(self) -> None:
        """A step starts."""
        for gradients in self._tracked.gradients:
            gradients.begin_step()

    def try_step(self, step: Step) -> None:
        """Its function is about to run: no update is made yet.

        An aborted step leaves the depth where it was, so every attempt starts it anew.
        """
        self._step, self._depth, self._count_before = step, 0, self.count
        self._undoes = self._gate.undo
        self.undo.begin()

    def put_back(self) -> None:
        """The step is aborted: undo its updates. Raises StateMismatch if gradients are lost."""
        self.undo.put_back()
        for gradients in self._tracked.gradients:
            gradients.check_kept()

    def begin_again(self) -> None:
        """The aborted step starts once more, with what it found put back."""
        for gradients in self._tracked.gradients:
            gradients.begin_again()

    def at_gate(self) -> None:
        """The gate is about to be entered."""
        for gradients in self._tracked.gradients:
            gradients.at_gate()

    def passed(self) -> None:
        """The step is committed: hear what comes behind its gate."""
        self._listen(on=not self._undoes)

    def end_try(self) -> None:
        """The function has returned, or raised."""
        self._listen(on=False)

    def _listen(self, *, on: bool) -> None:
        """For collectives behind the gate; in steps that are heard whole, who does so tells."""
        if (hears := self._recording.hears) is not None:
            hears.called_since_gate = False
        elif on:
            self._listener.heard, groups.tap = False, self._listener
        elif groups.tap is self._listener:
            groups.tap = None

    def end_step(self) -> None:
        """The step is committed and has returned."""
        for gradients in self._tracked.gradients:
            gradients.end_step()
        self._warn_of_undo()
        self._warn_of_gradients()

    @property
    def any_in_step(self) -> bool:
        """Whether the newest step has made one."""
        return self.count > self._count_before

    def forget(self) -> None:
        """Drop the copies."""
        self.undo = Undo()

    # --- one update -------------------------------------------------------------------------------

    def enter(self, optimizer: torch.optim.Optimizer, *, in_step: bool, passed: bool) -> bool:
        """Called before every `optimizer.step()`, also by an optimizer that holds others.

        passed: the step under way is committed
        True: it is to commit now.
        """
        self._depth += 1
        self.count += 1
        if not in_step:
            return False
        if passed and any(gradients.kept_bytes for gradients in self._tracked.gradients):
            self._gate.undo_wanted = True  # The record from the gate is old behind a second update.
        if self._depth == 1:
            self._spend_gradients(optimizer)
        if self._undoes:
            self.undo.before_update(self._tracked, optimizer)
        elif self._depth == 1 and passed:
            self._check_local()
        return self._depth == 1 and not self._undoes and not passed

    def leave(self, *, in_step: bool, passed: bool) -> None:
        """Called after every `optimizer.step()`."""
        self._depth -= 1
        if self._depth or not in_step:
            return
        if self._undoes:
            self._drills.at("updated", self._step)
        elif passed:
            self._check_local()

    def _spend_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        for gradients in self._tracked.gradients:
            gradients.at_gate()
            for group in optimizer.param_groups:
                gradients.spend(group["params"])

    def _check_local(self) -> None:
        """Collectives behind the gate that an update is made of: the job must undo such steps."""
        hears = self._recording.hears
        heard = hears.called_since_gate if hears is not None else self._listener.heard
        if not heard:
            return
        self._gate.undo_wanted = True
        if self._tainted() and (self._recording.recorder is None or self._step >= STEPS):
            raise StateMismatch(
                "A machine was lost in one of the first steps that made collectives behind their "
                "gate, inside optimizer.step() or between two updates.",
                means="The update is made of sums that are half done; the state cannot be used.",
                do="Start again from a checkpoint. Steps that do so from the start are protected.",
            )

    # --- what it costs ----------------------------------------------------------------------------

    def _warn_of_undo(self) -> None:
        """Once, with the first copy."""
        if self._told_undo or not self.undo.cost:
            return
        self._told_undo = True
        because = _SMALL_STATE if self._recording.differs else _COLLECTIVES
        self._warn(
            f"{because}: steps commit when their function returns, and what "
            "an update may touch is copied before it, to be undone if a machine is lost "
            f"({self.undo.cost} now)"
        )

    def _warn_of_gradients(self) -> None:
        """Once, when some are first kept."""
        size = sum(gradients.kept_bytes for gradients in self._tracked.gradients)
        if self._told_gradients or not size:
            return
        self._told_gradients = True
        self._warn(
            "gradients are accumulated over several steps: they go with the record of "
            f"each ({size / 1e6:.1f} MB now). Cheaper: all passes of one update in one "
            "function marked @job.step"
        )

    def _warn(self, text: str) -> None:
        if self._rank == 0:
            self._say(Warned(rank=self._rank, text=text))
