"""One epoch at a time makes progress: once a gate was through in one, none is in an older."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.ids import Epoch
from trainmover.simulator.happenings import Violation
from trainmover.simulator.training import Gate

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class OneEpoch:
    def __init__(self) -> None:
        self.newest = Epoch(0)

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Gate: self.gate}

    def gate(self, gate: Gate) -> None:
        if gate.epoch < self.newest:
            raise Violation(
                f"step {gate.step} is through in epoch {gate.epoch} after one in {self.newest}"
            )
        self.newest = gate.epoch
