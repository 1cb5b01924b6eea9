# SPDX-License-Identifier: Apache-2.0
"""The updates of a step: every `optimizer.step()` of the script, as the runtime sees it.

The first one of a step is its gate. What comes behind it, and what changes tracked state before it,
is not made again: a machine that is lost there takes all ranks back to a snapshot.
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
from trainmover.worker.step.unseen import Unseen

_BACK = "if a machine is lost there, all ranks go back to a snapshot"
_BEHIND = f"collectives are made behind the first update of a step: {_BACK}"
_UNEVEN = (
    "only some ranks have an optimizer, and the others may wait for what those update: steps "
    f"commit when their function returns, and {_BACK.replace('there', 'behind an update')}"
)


class Updates:
    """Of one rank, for all its steps.

    A step goes fetched, changed_since_fetch, begin_step, try_step, at_gate, passed, end_try,
    end_step; one that is aborted goes put_back, begin_again and from try_step on. The script's
    `enter` and `leave` come in between.

    count    calls of `optimizer.step()` so far, also outside of steps
    changes  of bulk state before their gate
    distrust  see `Unseen`
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
        self._rank = rank
        self._tracked = tracked
        self._gate = gate
        self._recording = recording
        self._drills = drills
        self._say = say
        self.changes = Changes()
        self._distrust = distrust
        self._unseen = Unseen(self.changes, distrust)
        self._calls_at_gate = -1
        self._step = Step(0)
        self._count_before = 0
        self._depth = 0
        self._at_return = False  # The step under way commits there.
        self._told: set[str] = set()

    # --- the step they are made in ----------------------------------------------------------------

    def mode_settled(self) -> None:
        """All ranks know where steps of this epoch commit."""
        if self._gate.at_return:
            self._tell_once("uneven", _UNEVEN)
        if any(gradients.accumulate for gradients in self._tracked.gradients):
            self._told.add("gradients")  # In an epoch before.

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
        self._at_return, self._calls_at_gate = self._gate.at_return, -1
        self.changes.early |= self._gate.early
        self.changes.begin(self._tracked)
        self._unseen.begin(self._tracked)

    def put_back(self) -> str:
        """The step is aborted: put gradients back. Returns why it cannot be made again in place;
        "": it can."""
        self._unseen.end()
        self._look_for_changes()
        if self.changes.names:
            return f"it has changed {_listed(self.changes.names)} before its gate"
        if self._at_return and self.any_in_step:
            return "it has made its update"
        if unseen := self.changes.unmarked or self._unseen.path:
            return f"it may have changed `{unseen}` before its gate, past torch's counters"
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
            if self._at_return:  # Nothing comes behind it.
                gradients.returned()

    def _look_for_changes(self) -> None:
        if self.changes.look():
            self._gate.early = True
            self._tell_once(
                "early",
                f"steps change {_listed(self.changes.names)} before their first update: {_BACK}",
            )

    def passed(self) -> None:
        """The step is committed: count what comes behind its gate."""
        self._calls_at_gate = -1 if self._at_return else groups.calls

    def end_try(self) -> None:
        """The function has returned, or raised."""
        self._unseen.end()
        if self._calls_at_gate not in (-1, groups.calls):
            self._tell_once("behind", _BEHIND)
        self._calls_at_gate = -1

    def end_step(self) -> None:
        """The step is committed and has returned."""
        self.changes.step_is_over(self._tracked)
        for gradients in self._tracked.gradients:
            gradients.end_step()
        self._warn_of_gradients()
        if self._unseen.path:
            self._tell_once(
                "aliases",
                f"the script has `.data` or a numpy array of `{self._unseen.path}` before the "
                f"first update of a step, through which it could change it unseen: {_BACK} "
                "(copy(), or no_grad() and torch's own functions, cost nothing)",
            )

    def of_updates(self, tensors: Sequence[Tensor]) -> list[int]:
        """Numbers of those on a device that only updates write to, as far as steps have shown."""
        return [] if self._unseen.any else self.changes.of_updates(self._tracked, tensors)

    @property
    def any_in_step(self) -> bool:
        """Whether the newest step has made one."""
        return self.count > self._count_before

    def forget(self) -> None:
        """Drop what was watched: the model is to go with its run."""
        self._unseen.forget()
        self.changes = Changes()
        self._unseen = Unseen(self.changes, self._distrust)

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
        if self._depth == 1:
            self._spend_gradients(optimizer)
        self._look_for_changes()
        return self._depth == 1 and not self._at_return and not passed

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

    # --- what it costs ----------------------------------------------------------------------------

    def _warn_of_gradients(self) -> None:
        """Once, when some are first kept."""
        if "gradients" in self._told:
            return
        if size := sum([gradients.kept_bytes for gradients in self._tracked.gradients]):
            self._tell_once(
                "gradients",
                "gradients are accumulated over several steps: they go with the record of "
                f"each ({size / 1e6:.1f} MB now). Cheaper: all passes of one update in one "
                "function marked @job.step",
            )

    def _tell_once(self, what: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            if self._rank == 0:
                self._say(Warned(rank=self._rank, text=text))


def _listed(names: list[str]) -> str:
    first, *more = names or ["what is tracked"]
    return f"`{first}`" + (f" and {len(more)} more" if more else "")
