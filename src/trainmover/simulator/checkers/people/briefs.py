# SPDX-License-Identifier: Apache-2.0
"""What is over is let go: the job keeps few incidents, and of older ones little.

What it keeps of an older one is still true, and as long as it is kept the same.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.past import BRIEFS, CERTIFICATES, KEPT, STACK_CHARS, STACKS
from trainmover.controller.effects import Closed
from trainmover.controller.state import Incident, Outcome
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

OF_EACH = ("further", "options", "positions", "held", "committed_first")
"""What there is of an incident for each rank or machine."""
SAME = (
    "number", "kind", "machine", "joiner", "cause", "rung", "epoch", "step", "failed", "redone",
    "outcome", "downtime_ms", "step_ms", "marks",
)  # fmt: skip


class Briefs:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        before, after = moment.before, moment.after
        closed = [effect.incident for effect in moment.effects if isinstance(effect, Closed)]
        if len(after.incidents) > KEPT or len(after.briefs) > BRIEFS:
            raise Violation(f"{len(after.incidents)} incidents are kept, {len(after.briefs)} brief")
        if after.briefs is before.briefs and not closed:
            return
        numbers = [one.number for one in (*before.briefs, *closed)]
        if [one.number for one in after.briefs] != numbers[-BRIEFS:]:
            raise Violation(f"{numbers} are over, and {after.briefs} are kept")
        for one, brief in zip(reversed(closed), reversed(after.briefs), strict=False):
            _is_brief(one, brief)


def _is_brief(one: Incident, brief: Incident) -> None:
    if one.outcome is Outcome.OPEN:
        raise Violation(f"incident {one.number} is let go, and is open")
    if wrong := [name for name in SAME if getattr(one, name) != getattr(brief, name)]:
        raise Violation(f"of incident {one.number} others {wrong} are kept")
    if large := [name for name in OF_EACH if getattr(brief, name)]:
        raise Violation(f"of incident {one.number} all {large} are kept")
    moved = [its for its in one.certificates if its.bytes]
    stacks = {rank: its[-STACK_CHARS:] for rank, its in [*one.stacks.items()][:STACKS]}
    kept = (brief.ranks, brief.lost, [*brief.certificates], brief.stacks)
    if kept != (one.ranks[:1], one.lost[:1], moved[-CERTIFICATES:], stacks):
        raise Violation(f"of incident {one.number} is kept {kept}")
