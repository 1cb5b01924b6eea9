# SPDX-License-Identifier: Apache-2.0
"""Nobody is moved for slowness who is not slow, and none twice for one cause.

The world knows which machine is slow, and which rank has more to do.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.incidents import found
from trainmover.controller.change.seats import at_hand
from trainmover.controller.effects import Send
from trainmover.controller.events import SlowFound, SlowSuspected
from trainmover.controller.policies.stragglers.known import Effect, SlowMove
from trainmover.controller.state import Job, Outcome
from trainmover.protocol.messages import Hold
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Stragglers:
    """Looks at what is found, at what is done about it, and at what that has come to."""

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self._world = world
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        before, after = moment.before, moment.after
        if isinstance(moment.event, SlowSuspected):
            self._only_gets_ready(moment)
        if before.stragglers is after.stragglers:
            return
        if isinstance(moment.event, SlowFound):
            self._is_true(moment.event)
        known = {move.incident for move in before.stragglers.moves}
        for move in after.stragglers.moves:
            if move.incident not in known:
                self._begins(before, after, move)
        for old, move in zip(before.stragglers.moves, after.stragglers.moves, strict=False):
            if old.effect is not move.effect is Effect.WORSE:
                self._left(before, after, move)

    @staticmethod
    def _only_gets_ready(moment: Decided) -> None:
        """It may be chance: at most one standby takes another run."""
        before, after = moment.before, moment.after
        kept = ("seats", "change", "incidents", "cordoned", "epoch")
        if any(getattr(before, name) != getattr(after, name) for name in kept):
            raise Violation(f"more than to get ready follows from {moment.event}")
        asks = before.spec.stragglers == "act"
        sent = [effect for effect in moment.effects if isinstance(effect, Send)]
        holds = [effect for effect in sent if isinstance(effect.order, Hold)]
        if (
            len(sent) > asks
            or len(holds) < len(sent)
            or any(one.machine in before.seats for one in sent)
        ):
            raise Violation(f"{sent} follows from {moment.event}")

    def _is_true(self, found: SlowFound) -> None:
        if found.kind == "network":
            self._is_narrow(found)
        elif found.kind == "machine" and found.machine not in self._world.ever_slow:
            raise Violation(f"{found.machine} is called slow, and never was")

    def _is_narrow(self, found: SlowFound) -> None:
        if {found.machine, found.peer} not in self._world.ever_narrow:
            raise Violation(f"the way from {found.machine} to {found.peer} never was slow")

    def _begins(self, before: Job, after: Job, move: SlowMove) -> None:
        if after.spec.stragglers != "act":
            raise Violation(f"{move.leaver} is moved, which nobody has asked for")
        ends = frozenset().union(*self._world.ever_narrow)
        if move.leaver not in (ends if move.kind == "network" else self._world.ever_slow):
            raise Violation(f"{move.leaver} was never slow: its ranks have more to do")
        if move.leaver not in after.cordoned:
            raise Violation(f"{move.leaver} is slow, and may take ranks")
        known = {one.incident for one in before.stragglers.moves}
        earlier = [
            one for one in after.stragglers.moves if one.slot == move.slot and one.incident in known
        ]
        if any(one.effect is Effect.VAIN for one in earlier):
            raise Violation(f"slot {move.slot} is moved again, though that was in vain")
        for one in earlier:
            past = found(after, one.incident)
            done = past is not None and past.outcome is Outcome.DONE
            if done and one.leaver == move.leaver and one.effect is Effect.OPEN:
                raise Violation(f"{move.leaver} is moved twice for one cause")
            if done and one.joiner == move.leaver and one.effect is Effect.OPEN:
                raise Violation(f"{move.leaver} is left before anybody knows whether it is slower")

    def _left(self, before: Job, after: Job, move: SlowMove) -> None:
        tries = sum(one.slot == move.slot for one in before.stragglers.moves)
        if tries == 1 and at_hand(after) and after.change is None and after.spec.wait_s > 1:
            raise Violation(f"the job is left slower by the move of {move.leaver}")
