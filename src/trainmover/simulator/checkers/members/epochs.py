# SPDX-License-Identifier: Apache-2.0
"""One epoch at a time makes progress: once a gate was through in one, none is in an older.

But a gate that asks nobody else than who was given up, as on a job of one machine, or where all
stood still together, is passed for nothing, until the agents hear of that, or their leases are
over.
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
        if self._are_given_up(gate):
            return
        if gate.epoch < self.newest:
            raise Violation(
                f"step {gate.step} is through in epoch {gate.epoch} after one in {self.newest}"
            )
        self.newest = gate.epoch

    def _are_given_up(self, gate: Gate) -> bool:
        host = self.world.host
        if host is None:  # Of two machines or more not all are lost while nobody decides.
            return self.world.spec.machines == 1
        known = host.control.accounts.of
        boxes = {worker.box for worker in gate.members}
        return all(
            box.name not in known or known[box.name].incarnation != box.incarnation for box in boxes
        )
