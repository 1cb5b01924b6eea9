# SPDX-License-Identifier: Apache-2.0
"""What a machine's workers say together counts as if each had said it by itself."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.decide import decide
from trainmover.controller.effects import Effect
from trainmover.controller.events import WorkersSaid
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Apart:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided} if world.spec.nproc > 1 else {}

    def decided(self, moment: Decided) -> None:
        event, job = moment.event, moment.before
        if not isinstance(event, WorkersSaid) or len(event.facts) < 2:
            return
        effects: tuple[Effect, ...] = ()
        for fact in event.facts:
            one = WorkersSaid(
                at_us=event.at_us, machine=event.machine, facts=[fact], number=event.number
            )
            job, more = decide(job, one)
            effects += more
        if job.hanging != moment.after.hanging:
            return  # Who stands still is judged at each of them.
        if (job, effects) != (moment.after, moment.effects):
            raise Violation(f"{event} would come to {effects}, and comes to {moment.effects}")
