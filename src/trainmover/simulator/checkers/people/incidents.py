# SPDX-License-Identifier: Apache-2.0
"""Incidents are numbered, come one after the other, and end once; epochs and commits only grow."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.incidents import incident
from trainmover.controller.state import Job, Outcome
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Incidents:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        before, after = moment.before, moment.after
        if after.epoch_last < before.epoch_last or after.epoch < before.epoch:
            raise Violation(f"epoch {before.epoch} is followed by {after.epoch}")
        back = after.restarts > before.restarts or (after.change and after.change.back)
        if after.committed < before.committed and not back:
            raise Violation(f"step {before.committed} was committed, and now {after.committed} is")
        going = after.change
        if going is not None and going.back and going.committed not in (None, after.committed):
            raise Violation(f"all go back to {going.committed}, and {after.committed} is committed")
        if after.incidents is not before.incidents:
            self._in_turn(before, after)
        change = after.change
        if change is not None and incident(after, change.incident).outcome is not Outcome.OPEN:
            raise Violation(f"incident {change.incident} is over, and its change is under way")

    def _in_turn(self, before: Job, after: Job) -> None:
        now = {one.number: one for one in after.incidents}
        for old in before.incidents:
            new = now.get(old.number, old)
            if old.outcome is not Outcome.OPEN and new.outcome != old.outcome:
                raise Violation(f"incident {old.number} was {old.outcome}, and is {new.outcome}")
        numbers, next_one = [*now], max((one.number for one in before.incidents), default=0) + 1
        first = numbers[0] if numbers else next_one
        if numbers != [*range(first, first + len(after.incidents))] or first > next_one:
            raise Violation(f"incidents {numbers} are no row, or leave some out")
        if any(one.outcome is Outcome.OPEN for one in after.incidents[:-1]):
            raise Violation("an incident has begun while one before it is open")
