# SPDX-License-Identifier: Apache-2.0
"""Nobody is given up for what has befallen another: a relay that is struck is no evidence against
those behind it. A machine that is lost has died, stood still, or was cut off or slowed down, or
what was agreed with it has been torn off the journal."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.events import MachinesLost
from trainmover.simulator.happenings import Decided, Replayed, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Blame:
    def __init__(self) -> None:
        self.torn = False

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Decided: self.decided, Replayed: self.replayed}

    def replayed(self, moment: Replayed) -> None:
        self.torn = self.torn or bool(moment.torn)

    def decided(self, moment: Decided) -> None:
        if not isinstance(moment.event, MachinesLost) or self.torn:
            return
        for one in moment.event.lost:
            box = self.world.boxes[one.machine]
            if one.machine not in self.world.struck and not box.frozen:
                raise Violation(f"{one.machine} was given up, which nothing befell: {one.why}")
