"""Incidents are numbered, come one after the other, and end once; epochs and commits only grow."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
        if change is not None and after.incidents[change.incident - 1].outcome is not Outcome.OPEN:
            raise Violation(f"incident {change.incident} is over, and its change is under way")

    def _in_turn(self, before: Job, after: Job) -> None:
        for number, (old, new) in enumerate(
            zip(before.incidents, after.incidents[: len(before.incidents)], strict=True), start=1
        ):
            if old is not new and old.outcome is not Outcome.OPEN and new.outcome != old.outcome:
                raise Violation(f"incident {number} was {old.outcome}, and is {new.outcome}")
        for number, one in enumerate(after.incidents, start=1):
            if one.number != number:
                raise Violation(f"incident {one.number} stands in the place of {number}")
        if any(one.outcome is Outcome.OPEN for one in after.incidents[:-1]):
            raise Violation("an incident has begun while one before it is open")
