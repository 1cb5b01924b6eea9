# SPDX-License-Identifier: Apache-2.0
"""A job ends well only after its processes have left: what a script does as it exits is its own."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import End
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Leaving:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        if not any(isinstance(effect, End) and effect.code == 0 for effect in moment.effects):
            return
        seated = {name for name in moment.after.seats if name in moment.after.machines}
        for worker in self.world.workers():
            if worker.live and worker.box.name in seated:
                raise Violation(f"the job has ended well, and {worker} has not left")
