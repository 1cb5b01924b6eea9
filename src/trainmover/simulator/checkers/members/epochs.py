"""One epoch at a time makes progress: once a gate was through in one, none is in an older.

But a job on one machine has a gate that asks nobody: who was given up passes it for nothing, until
its agent hears of that, or its lease is over.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.ids import Epoch
from trainmover.simulator.happenings import Violation
from trainmover.simulator.ranks.training import Gate

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class OneEpoch:
    def __init__(self) -> None:
        self.newest = Epoch(0)

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Gate: self.gate}

    def gate(self, gate: Gate) -> None:
        if self.world.spec.machines == 1 and self._is_given_up(gate):
            return
        if gate.epoch < self.newest:
            raise Violation(
                f"step {gate.step} is through in epoch {gate.epoch} after one in {self.newest}"
            )
        self.newest = gate.epoch

    def _is_given_up(self, gate: Gate) -> bool:
        host = self.world.host
        known = host.control.accounts.of if host is not None else {}
        boxes = {worker.box for worker in gate.members}
        return any(
            box.name not in known or known[box.name].incarnation != box.incarnation for box in boxes
        )
