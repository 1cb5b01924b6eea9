# SPDX-License-Identifier: Apache-2.0
"""No rank commits a step twice with another outcome, and none skips one.

What a step makes depends on nothing but the state before it. So every rank must have had the state
after the step before, and a step must have been through its gate, or be declared committed.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import Send
from trainmover.ids import Step
from trainmover.protocol.messages import Verdict
from trainmover.simulator.happenings import Decided, Placed, Stepped, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Commits:
    def __init__(self) -> None:
        self.declared: set[Step] = set()

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Stepped: self.stepped, Placed: self.placed, Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        for effect in moment.effects:
            if isinstance(effect, Send) and isinstance(effect.order, Verdict):
                self.declared.add(effect.order.committed)

    def stepped(self, moment: Stepped) -> None:
        step = moment.step
        if moment.holds != step - 1:
            raise Violation(
                f"rank {moment.rank} has committed step {step} on the state after {moment.holds}"
            )
        if (moment.epoch, step) not in self.world.training.open and step not in self.declared:
            raise Violation(
                f"rank {moment.rank} has committed step {step}, which was never through"
            )

    def placed(self, moment: Placed) -> None:
        if moment.holds.after != moment.step:
            raise Violation(
                f"{moment.worker} was to hold the state after step {moment.step} and has that "
                f"after {moment.holds.after}"
            )
