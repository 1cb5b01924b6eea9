# SPDX-License-Identifier: Apache-2.0
"""Journal before effect: what an agent hears is what the journal gives again, in its order.

So a controller that takes over knows all that the one before knew, and no order is lost, doubled or
out of turn.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.decide import decide
from trainmover.controller.effects import Fence, Send
from trainmover.controller.events import MachineJoined
from trainmover.controller.state import Job
from trainmover.ids import MachineId
from trainmover.protocol.messages import Order
from trainmover.simulator.happenings import Decided, Heard, Replayed, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Journaled:
    """orders: to each incarnation of an agent, that the journal stands for; obeyed: those that it
    has heard, of which all are to be among these; doubted: whose must be compared anew."""

    def __init__(self) -> None:
        self.orders: dict[str, list[Order]] = {}
        self.obeyed: dict[str, list[Order]] = {}
        self.doubted: set[str] = set()
        self.incarnations: dict[MachineId, str] = {}
        self.job: Job | None = None
        self.journaled = 0

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Decided: self.decided, Heard: self.heard, Replayed: self.replayed}

    def decided(self, moment: Decided) -> None:
        if moment.seq != self.journaled + 1:
            raise Violation(f"{moment.event} was decided on and is not in the journal")
        self.journaled, self.job = moment.seq, moment.after
        self._follow(moment.event, moment.effects)

    def _follow(self, event: object, effects: tuple[object, ...]) -> None:
        if isinstance(event, MachineJoined):
            self.incarnations[event.machine] = event.incarnation
            self.orders[event.incarnation] = []
        for effect in effects:
            if isinstance(effect, Send) and effect.machine in self.incarnations:
                self.orders[self.incarnations[effect.machine]].append(effect.order)
            elif isinstance(effect, Fence):
                self.incarnations.pop(effect.machine, None)

    def heard(self, moment: Heard) -> None:
        name, orders = moment.incarnation, self.orders.get(moment.incarnation, [])
        obeyed = self.obeyed.setdefault(name, [])
        obeyed.append(moment.order)
        known = orders[moment.number - 1] if moment.number <= len(orders) else None
        if name in self.doubted and obeyed == orders[: moment.number]:
            self.doubted.remove(name)
        if name in self.doubted or known != moment.order:
            raise Violation(
                f"{moment.machine} has heard as order {moment.number} {moment.order}; "
                f"by the journal it is {known}"
            )

    def replayed(self, moment: Replayed) -> None:
        """What was torn off is not known to anybody any more."""
        if not moment.torn:
            if self.job is not None and moment.job != self.job:
                raise Violation("a replay of the journal does not give the job that was")
            return
        self.doubted = set(self.obeyed)
        self.orders, self.incarnations, job = {}, {}, Job(spec=self.world.spec)
        for event in self.world.disk.events():
            job, effects = decide(job, event)
            self._follow(event, effects)
        self.job, self.journaled = job, len(self.world.disk.records)
