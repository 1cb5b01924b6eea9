# SPDX-License-Identifier: Apache-2.0
"""The updates of a step: every `optimizer.step()` of the script, as the runtime sees it.

The first one of a step is its gate. What comes behind the gate must be local; where it is not, the
job goes over to steps that are undone (see `undo`).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainmover.comm import groups
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Warned, WorkerFact
from trainmover.state.tracked import Tracked
from trainmover.worker.drill import Drills
from trainmover.worker.keep.first_steps import Recording
from trainmover.worker.step.changes import Changes
from trainmover.worker.step.gate import Gate
from trainmover.worker.step.retry.undo import Undo
from trainmover.worker.step.unseen import Unseen

_COLLECTIVES = "collectives are made behind the first update of a step"
_UNEVEN = "only some ranks have an optimizer, and the others may wait for what those update"


class Updates:
    """Of one rank, for all its steps.

    A step goes fetched, changed_since_fetch, begin_step, try_step, at_gate, passed, end_try,
    end_step; one that is aborted goes put_back, begin_again and from try_step on. The script's
    `enter` and `leave` come in between.

    count    calls of `optimizer.step()` so far, also outside of steps
    undo     what those of the step under way have changed
    changes  of bulk state before their gate
    distrust  see `Unseen`
    commits_at_return  steps may do so, and be undone: False where their end is not known
    """

    def __init__(
        self,
        rank: Rank,
        *,
        tracked: Tracked,
        gate: Gate,
        recording: Recording,
        drills: Drills,
        say: Callable[[WorkerFact], None],
        distrust: Callable[[str], None],
    ) -> None:
        self.count = 0
        self.undo = Undo()
        self._rank = rank
        self._tracked = tracked
        self._gate = gate
        self._recording = recording
        self._drills = drills
        self._say = say
        self.changes = Changes()
        self._distrust = distrust
        self._unseen = Unseen(self.undo, self.changes, distrust)
        self._calls_at_gate = -1
        self._because = ""
        self._step = Step(0)
        self._count_before = 0
        self._depth = 0
        self.commits_at_return = True
        self._undoes = False  # The step under way commits at its return.
        self._told_undo = self._told_gradients = self._told_aliases = False

    # --- the step they are made in ----------------------------------------------------------------

    def mode_settled(self) -> None:
        """What was so in an epoch before is no news."""
        if self._gate.uneven:
            self._because = _UNEVEN
        else:
            self._told_undo = self._told_undo or self._gate.undo
        self._told_gradients = self._told_gradients or any(
            gradients.accumulate for gradients in self._tracked.gradients
        )

    def fetched(self) -> None:
        """The script has fetched for its next step."""
        self.changes.at_fetch(self._tracked)

    def changed_since_fetch(self) -> str:
        """What the lines between that and the step have changed, for people; "": nothing."""
        names = self.changes.since_fetch(self._tracked)
        return _listed(names) if names else ""

    def begin_step(self) -> None:
        """A step starts."""
        for gradients in self._tracked.gradients:
            gradients.begin_step()

    def try_step(self, step: Step) -> None:
        """Its function is about to run: no update is made yet.

        An aborted step leaves the depth where it was, so every attempt starts it anew.
        """
        self._step, self._depth, self._count_before = step, 0, self.count
        self._undoes, self._calls_at_gate = self._gate.undo, -1
        self.undo.begin()
        self.changes.early |= self._gate.early
        if self.changes.early:
            self.changes.copied()
            self.undo.copy_all(self._tracked)
        else:
            self.changes.begin(self._tracked)
            self._unseen.begin(self._tracked)

    def put_back(self) -> str:
        """The step is aborted: undo what it has changed. Why that cannot be; "" if it is done."""
        self._unseen.end()
        self._look_for_changes()
        if self.changes.names:
            return (
                "a step was aborted that, for the first time, had changed "
                f"{_listed(self.changes.names)} before its gate"
            )
        self.undo.put_back()
        reasons = [gradients.put_back() for gradients in self._tracked.gradients]
        return next(filter(None, reasons), "")

    def begin_again(self) -> None:
        """The aborted step starts once more, with what it found put back."""
        for gradients in self._tracked.gradients:
            gradients.begin_again()

    def at_gate(self) -> None:
        """The gate is about to be entered."""
        self._unseen.end()
        self._look_for_changes()
        for gradients in self._tracked.gradients:
            gradients.at_gate()
            if self._undoes:  # Nothing comes behind it.
                gradients.returned()

    def _look_for_changes(self) -> None:
        found = self.changes.look()
        self._gate.early |= found
        if found and self._rank == 0:
            self._say(
                Warned(
                    rank=self._rank,
                    text=f"steps change {_listed(self.changes.names)} before their first update: "
                    "from now on all that is tracked is copied as each step begins, to be put back "
                    "if it is run again",
                )
            )

    def passed(self) -> None:
        """The step is committed: count what comes behind its gate."""
        self._calls_at_gate = -1 if self._undoes else groups.calls

    def end_try(self) -> None:
        """The function has returned, or raised."""
        self._unseen.end()
        self._check_local()

    def end_step(self) -> None:
        """The step is committed and has returned."""
        self.changes.step_is_over(self._tracked)
        for gradients in self._tracked.gradients:
            gradients.end_step()
        self._warn_of_undo()
        self._warn_of_gradients()
        if self._unseen.names:
            self._warn_of_aliases()

    def of_updates(self, tensors: Sequence[Tensor]) -> list[int]:
        """Numbers of those on a device that only updates write to, as far as steps have shown."""
        return [] if self._unseen.any else self.changes.of_updates(self._tracked, tensors)

    @property
    def _keeps_gradients(self) -> bool:
        return any(gradients.kept_bytes for gradients in self._tracked.gradients)

    @property
    def any_in_step(self) -> bool:
        """Whether the newest step has made one."""
        return self.count > self._count_before

    def forget(self) -> None:
        """Drop the copies, and what was watched: the model is to go with its run."""
        self._unseen.forget()
        self.undo, self.changes = Undo(), Changes()
        self._unseen = Unseen(self.undo, self.changes, self._distrust)

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
        if passed and self.commits_at_return and self._keeps_gradients:
            self._gate.undo_wanted = True  # The record from the gate is old behind a second update.
        if self._depth == 1:
            self._spend_gradients(optimizer)
        self._look_for_changes()
        if self._undoes:
            self.undo.before_update(self._tracked, optimizer)
        return self._depth == 1 and not self._undoes and not passed

    def break_off(self, count: int) -> None:
        """A try in the sandbox has ended at its gate. count: updates before it"""
        self.count, self._depth = count, 0

    def leave(self, *, in_step: bool) -> None:
        """Called after every `optimizer.step()`."""
        self._depth -= 1
        if self._depth or not in_step:
            return
        if self._drills.planned:
            self._drills.at("updated", self._step)

    def _spend_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        for gradients in self._tracked.gradients:
            gradients.at_gate()
            for group in optimizer.param_groups:
                gradients.spend(group["params"])

    def _check_local(self) -> None:
        """Collectives behind the gate may be part of the update: the job must undo such steps."""
        if self._calls_at_gate in (-1, groups.calls):
            return
        self._calls_at_gate = -1
        if self.commits_at_return and not self._gate.undo_wanted:
            self._gate.undo_wanted, self._because = True, _COLLECTIVES

    # --- what it costs ----------------------------------------------------------------------------

    def _warn_of_undo(self) -> None:
        """Once, with the first copy."""
        if self._told_undo or not self.undo.cost:
            return
        if self.changes.early and not self._undoes:
            return  # That has been said.
        because = self._because or _COLLECTIVES
        self._warn(
            f"{because}: steps commit when their function returns, and what "
            "an update may touch is copied before it, to be undone if a machine is lost "
            f"({self.undo.cost} now)"
        )
        self._told_undo = True

    def _warn_of_aliases(self) -> None:
        """Once, when the first are copied for it."""
        names, self._unseen.names = self._unseen.names, []
        if self._told_aliases:
            return
        self._told_aliases = True
        self._warn(
            f"the script has `.data` or a numpy array of {_listed(names)} before the first update "
            "of a step, through which it could change them unseen: they are copied first, to be "
            "put back if the step is run again (copy(), or no_grad() and torch's own functions, "
            "cost nothing)"
        )

    def _warn_of_gradients(self) -> None:
        """Once, when some are first kept."""
        if self._told_gradients:
            return
        size = sum([gradients.kept_bytes for gradients in self._tracked.gradients])
        if not size:
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


def _listed(names: list[str]) -> str:
    first, *more = names or ["what is tracked"]
    return f"`{first}`" + (f" and {len(more)} more" if more else "")
