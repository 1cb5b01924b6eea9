# SPDX-License-Identifier: Apache-2.0
"""What is numbered is numbered one by one: no number twice, and none left out.

epochs       each has been told to somebody, or is that of the change under way
runs         each was ordered, of one machine
examinations, plans, moves of a plan, takeovers, restarts: one more for each, and for nothing else
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.interruption import RETRIES_MAX
from trainmover.controller.effects import Send
from trainmover.controller.events import (
    ControllerReturned,
    MachinesLost,
    PlaceRequested,
    RollRequested,
)
from trainmover.controller.state import Job, Phase
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Numbers:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        before, after = moment.before, moment.after
        if after is before:
            return
        returned = isinstance(moment.event, ControllerReturned)
        _is_one_more("takeovers", before.takeovers, after.takeovers, by=int(returned))
        if returned and after.taken_over_us != moment.event.at_us:
            raise Violation(f"a controller came at {moment.event.at_us}: {after.taken_over_us}")
        orders = [effect.order for effect in moment.effects if isinstance(effect, Send)]
        if not returned:
            _epochs(moment, orders)
            _runs(before, after, orders)
        asked = [order.number for order in orders if isinstance(order, m.Examine)]
        if asked != [*range(before.health.asked + 1, after.health.asked + 1)]:
            raise Violation(f"examinations {asked} were ordered after {before.health.asked}")
        _plans(moment)
        if not 0 <= after.restarts - before.restarts <= 1:
            raise Violation(f"restarts were {before.restarts}, and are {after.restarts}")
        _retries(moment)


def _is_one_more(what: str, before: int, after: int, *, by: int = 1) -> None:
    if after - before != by:
        raise Violation(f"{what} were {before}, and are {after}")


def _epochs(moment: Decided, orders: list[m.Order]) -> None:
    before, after = moment.before, moment.after
    if before.phase in (Phase.GATHERING, Phase.STARTING):
        return  # A job that goes on from a checkpoint passes over those of the run before.
    told = {getattr(order, "epoch", 0) for order in orders}
    told.add(after.change.epoch if after.change is not None else after.epoch)
    new = {*range(before.epoch_last + 1, after.epoch_last + 1)}
    if left := new - told:
        raise Violation(f"epochs {sorted(left)} are nobody's: {moment.event}")
    if late := {epoch for epoch in told if epoch > after.epoch_last}:
        raise Violation(f"epochs {sorted(late)} come after {after.epoch_last}")


def _runs(before: Job, after: Job, orders: list[m.Order]) -> None:
    """A bind of what a machine holds is no new run."""
    kinds = (m.WarmUp, m.Hold, m.Bind)
    new = sorted(o.run for o in orders if isinstance(o, kinds) and o.run > before.runs)
    if new != [*range(before.runs + 1, after.runs + 1)]:
        raise Violation(f"runs {new} were ordered after {before.runs}, counted {after.runs}")


def _plans(moment: Decided) -> None:
    before, after = moment.before.plan, moment.after.plan
    if after is None or after is before:
        return
    asked = isinstance(moment.event, RollRequested | PlaceRequested)
    number = 0 if before is None else before.number
    if after.number - number not in ({0, 1} if asked else {0}):
        raise Violation(f"plan {after.number} follows plan {number}: {moment.event}")
    known = 0 if before is None or after.number != number else before.moves
    begun = moment.after.change is not None and moment.after.change is not moment.before.change
    moved = begun and moment.after.incidents[-1].number == after.incident
    moved = moved and (before is None or before.incident != after.incident)
    _is_one_more(f"moves of plan {after.number}", known, after.moves, by=int(moved))


def _retries(moment: Decided) -> None:
    """One more with each attempt, and none with a loss of machines; a commit ends the row."""
    before, after = moment.before, moment.after
    if after.phase is Phase.ENDED:
        return
    if after.retries > min(before.retries + 1, RETRIES_MAX):
        raise Violation(f"{before.retries} attempts were made, and now {after.retries}")
    if isinstance(moment.event, MachinesLost) and after.retries > before.retries:
        raise Violation(f"that machines are lost is an attempt: {after.retries}")
    if after.change is before.change and after.retries > before.retries:
        raise Violation(f"attempt {after.retries} is none: {moment.event}")
