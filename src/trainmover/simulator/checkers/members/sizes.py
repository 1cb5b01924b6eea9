# SPDX-License-Identifier: Apache-2.0
"""The world size never changes silently: a gate has every rank once, and every slot one machine."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.simulator.happenings import Decided, Violation
from trainmover.simulator.ranks.training import Gate

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class WorldSize:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.spec = world.spec
        self.whole = list(range(world.spec.world_size))
        return {Gate: self.gate, Decided: self.decided}

    def gate(self, gate: Gate) -> None:
        ranks = sorted(worker.rank for worker in gate.members)
        if ranks != self.whole:
            raise Violation(f"the gate of step {gate.step} was through with ranks {ranks}")

    def decided(self, moment: Decided) -> None:
        seats = moment.after.seats
        if seats is moment.before.seats or (not seats and moment.after.spec.engine):
            return
        if len(seats) != self.spec.machines or len(set(seats)) != len(seats):
            raise Violation(f"{self.spec.machines} slots are held by {seats}")
