# SPDX-License-Identifier: Apache-2.0
"""No standby is bound twice: in one epoch a machine gets one slot, and a slot one machine and one
more where that one may be stuck."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import Send
from trainmover.controller.state import Change, Job, Phase
from trainmover.ids import Slot
from trainmover.protocol.messages import Bind
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Bindings:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        change = moment.after.change
        if change is None and moment.after.phase is Phase.STARTING:
            return  # It was given up at once, for a start of all from nothing.
        if change is not None:
            joiners = [*change.joiners.values(), *change.hedges.values()]
            if len(set(joiners)) != len(joiners):
                raise Violation(f"a standby was chosen twice: {change.joiners}")
            self._leaves_its_own(moment.after, change)
        for effect in moment.effects:
            if isinstance(effect, Send) and isinstance(effect.order, Bind):
                slot = effect.order.slot
                taken = (
                    {} if change is None else {change.joiners.get(slot), change.hedges.get(slot)}
                )
                if effect.machine not in taken and moment.after.code is None:
                    raise Violation(f"{effect.machine} is bound to a slot that {taken} is to take")

    def _leaves_its_own(self, job: Job, change: Change) -> None:
        """A machine that has a slot may take another if somebody else takes that one."""
        seated = {name: Slot(slot) for slot, name in enumerate(job.seats)}
        for slot, name in change.joiners.items():
            own = seated.get(name, slot)
            if own != slot and own not in change.joiners and own not in change.missing:
                raise Violation(f"{name} has slot {own} and is to take {slot} too")
