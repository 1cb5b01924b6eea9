# SPDX-License-Identifier: Apache-2.0
"""What an incident says of itself is what has happened.

rung, step, redone    whether all went back, to which step, and how far that was
ranks                 who has joined; each has said where its state came from
marks                 its phases, one after the other, from when it was heard of to a first step
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import Send
from trainmover.controller.state import Incident, Job, Kind, Outcome
from trainmover.ids import Epoch
from trainmover.protocol.messages import Switch
from trainmover.simulator.happenings import Decided, Replayed, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

PHASES = {
    Kind.MOVE: ("begun", "bind", "prepare", "pause"),
    Kind.RECOVERY: ("heard", "detect", "drain", "bind"),
}
"""That every one has, in order; behind them come `switchover` and `first_step`."""
RESUMED = "it was started with --resume"
"""Nobody has ranks to drain."""


class Records:
    """switches: of each epoch, as it was ordered, to the job as it was then."""

    def __init__(self) -> None:
        self.switches: dict[Epoch, Switch] = {}

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Decided: self.decided, Replayed: self.replayed}

    def replayed(self, moment: Replayed) -> None:
        if moment.torn:
            self.switches.clear()

    def decided(self, moment: Decided) -> None:
        for effect in moment.effects:
            if isinstance(effect, Send) and isinstance(effect.order, Switch):
                self.switches[effect.order.epoch] = effect.order
        before, after = moment.before.incidents, moment.after.incidents
        if after is before:
            return
        known = {one.number: one for one in before}
        for new in after:
            old = known.get(new.number, new)
            if old is not new and new.rung >= 2 > old.rung:
                self._is_redone(moment.before, new)
            if old is not new and old.outcome is Outcome.OPEN and new.outcome is Outcome.DONE:
                self._is_true(moment.after, new)

    def _is_redone(self, job: Job, one: Incident) -> None:
        """All go back from what somebody is known to have committed, and no gate was beyond; but a
        record may be of the step that follows one whose gate is not through."""
        if one.step is None or (one.rung == 3 and not one.redone):
            return  # It is looked for on the disk; or nothing was trained yet.
        least, most = job.committed - one.step, self.world.training.newest + 1 - one.step
        if not max(least, 0) <= one.redone <= most:
            raise Violation(
                f"incident {one.number} runs {one.redone} steps again from {one.step}, "
                f"of {job.committed} known and {self.world.training.newest} made"
            )

    def _is_true(self, job: Job, one: Incident) -> None:
        switch = self.switches.get(one.epoch)
        if switch is None:
            return
        if (one.rung >= 2 and not switch.back) or (one.rung == 1 and switch.back):
            raise Violation(f"incident {one.number} says rung {one.rung}; back is {switch.back}")
        if one.kind is Kind.RECOVERY and one.step != switch.committed:
            raise Violation(f"incident {one.number} says step {one.step}, not {switch.committed}")
        self._names_who_joined(job, one, switch)
        self._phases_follow(one)

    def _names_who_joined(self, job: Job, one: Incident, switch: Switch) -> None:
        joined = set(switch.sources)
        if not switch.back and set(one.ranks) != joined:
            raise Violation(f"incident {one.number} is of ranks {one.ranks}; joined are {joined}")
        if said := joined - {its.rank for its in one.certificates}:
            raise Violation(f"incident {one.number} does not say whence ranks {said} have state")
        if one.joiner is not None and one.joiner not in job.seats and one.rung < 2:
            raise Violation(f"incident {one.number}: {one.joiner} was to take ranks, and has none")

    def _phases_follow(self, one: Incident) -> None:
        names = [*PHASES[one.kind], "switchover", "first_step"]
        if one.why_rung == RESUMED:
            names.remove("drain")
        if lacks := set(names) - one.marks.keys():
            raise Violation(f"incident {one.number} has no end of {sorted(lacks)}")
        moments = [one.marks[name] for name in names]
        if moments != sorted(moments):
            raise Violation(f"incident {one.number} has its phases in another order: {one.marks}")
