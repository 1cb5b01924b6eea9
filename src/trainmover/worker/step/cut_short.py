# SPDX-License-Identifier: Apache-2.0
"""Collectives that end with their epoch give nothing: how the script is left where that matters.

*In a step, before its gate*, it runs on: the step will not count, and mostly it is over soon. One
that makes calls without end (a loop until all ranks agree) is left after a while, for its next
attempt.

*In a run in the sandbox* that another worker of the machine has left, or that is recalled for other
work, nothing counts any more: it is left at its next call.

*In a step that waits for one of an earlier step*, which was cut short: nobody makes that again, so
all ranks go back to a cut.

*Behind the gate, or between two steps*, nothing will be made again, and what the call has left in
its tensors is no value: the script is left at once, and all ranks go back to a cut.

Who makes collectives between steps says so, once: it needs a cut to go back to. So does who changes
bulk state between the fetch of a batch and its step.
"""

import time
import traceback
from collections.abc import Callable
from typing import NoReturn, Protocol

from trainmover.comm import groups
from trainmover.errors import StateMismatch
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import BetweenSteps, Warned, WorkerFact
from trainmover.worker.program import place_of
from trainmover.worker.standing import Unwind
from trainmover.worker.step.boundary import Boundary
from trainmover.worker.step.gate import Gate

CALLS_MAX = 10_000
CALLS_AT_LEAST, SECONDS_MAX = 200, 5.0
"""A step of so many calls, or of some for so long, does not come to its end by itself."""
_OF_BEFORE = (
    "it waits for a collective that began before it, and was cut short; wait for each in the step, "
    "or between the steps, where it begins"
)


class Stands(Protocol):
    """Where the rank stands: in a step, behind the gate of that, in a shadow run."""

    in_step: bool
    passed: bool
    calls: Step

    @property
    def is_shadow(self) -> bool: ...


class CutShort:
    """Of one rank."""

    def __init__(
        self,
        rank: Rank,
        stands: Stands,
        *,
        boundary: Boundary,
        gate: Gate,
        say: Callable[[WorkerFact], None],
    ) -> None:
        self._rank = rank
        self._stands = stands
        self._boundary = boundary
        self._gate = gate
        self._say = say
        self._told = self._told_change = False
        self._calls, self._since = 0, 0.0
        groups.on_cut_short = self._happened
        groups.on_given_up = self._leave

    def begin_try(self) -> None:
        """A step is tried."""
        self._calls, groups.on_call = 0, None

    def outside(self) -> None:
        """The rank is live, and in no step: whoever makes a collective now depends on a cut."""
        if not self._told:
            groups.on_call = self._between

    def changed_between(self, names: str) -> None:
        """A step is about to begin, and lines before it have changed these."""
        if self._told_change or self._stands.is_shadow:
            return
        self._told_change = True
        where = place_of(traceback.extract_stack())
        step = self._stands.calls
        self._say(BetweenSteps(rank=self._rank, step=step, where=where, changed=names))

    def forget(self) -> None:
        """The run of the script is over."""
        groups.on_cut_short = groups.on_given_up = groups.on_call = None

    @property
    def _counts(self) -> bool:
        """Whether nothing will be made again."""
        stands = self._stands
        return (stands.passed or not stands.in_step) and not stands.is_shadow

    def _happened(self) -> None:
        """From any thread."""
        self._boundary.cut_short |= not self._stands.is_shadow
        if self._counts:
            self._boundary.misled = True

    def _leave(self) -> None:
        """In the main thread, about to go on with what is no value. May raise Unwind or Retry."""
        if self._stands.is_shadow:
            if groups.deserted:
                raise Unwind
            return
        if self._boundary.misled:
            self._boundary.settle()
            self._refuse_if_over()
        elif self._is_of_before():
            self.cannot_run_again(self._stands.calls, _OF_BEFORE)
        elif self._stands.in_step and self._goes_round():
            self._gate.await_verdict(self._stands.calls)

    def _is_of_before(self) -> bool:
        """Whether it began in a step that is over, and was cut short before this try: nothing has
        been since."""
        is_first = self._stands.in_step and not self._stands.passed
        return is_first and not self._boundary.cut_short and not groups.draining

    def cannot_run_again(self, step: Step, why: str) -> NoReturn:
        """The aborted step has changed what nobody can put back: all ranks go back to a cut.

        Raises Unwind then; StateMismatch where there is none.
        """
        self._boundary.misled = True
        self._say(Warned(rank=self._rank, text=f"step {step} cannot be run again in place: {why}"))
        self._boundary.settle()
        raise StateMismatch(
            f"Step {step} cannot be run again: {why}.",
            means="It would give other numbers, and no cut is at hand to go back to.",
            do="Run the job with --snapshots STEPS or --checkpoint DIR, so that there is one.",
        )

    def _refuse_if_over(self) -> None:
        """Behind a closing switchover groups have no peers, and never will."""
        if self._boundary.closing and groups.draining:
            raise StateMismatch(
                f"Rank {self._rank} makes a collective behind its last step, and a rank was lost "
                "there while scripts of others had ended.",
                means="The collective gives nothing: the job must not go on with what it left.",
                do="Make such collectives in the last step.",
            )

    def _goes_round(self) -> bool:
        now = time.monotonic()
        self._since = self._since if self._calls else now
        self._calls += 1
        long = self._calls > CALLS_AT_LEAST and now - self._since > SECONDS_MAX
        return long or self._calls > CALLS_MAX

    def _between(self) -> None:
        """The first collective between two steps."""
        groups.on_call, self._told = None, True
        where = place_of(traceback.extract_stack())
        self._say(BetweenSteps(rank=self._rank, step=self._stands.calls, where=where))
