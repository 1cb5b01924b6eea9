# SPDX-License-Identifier: Apache-2.0
"""No change chooses a machine that is cordoned, but to have its own ranks again, or for want of any
other after a loss: then one that only a policy keeps out, since it is slow or may fail."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.state import Kind
from trainmover.ids import MachineId, Slot
from trainmover.simulator.checkers.losses.capacity import able
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.controller.state import Job
    from trainmover.simulator.world import World


class Cordons:
    """Looks at who is chosen in the moment of the choice."""

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        before, after = moment.before, moment.after
        if before.change is after.change or not after.cordoned:
            return
        for slot, machine in _joiners(after) - _joiners(before):
            if machine not in after.cordoned or before.seats[slot] == machine:
                continue
            others = [name for name in able(after) if name not in (*after.cordoned, *after.seats)]
            taken = {name for _, name in _joiners(after)}
            last = after.change is not None and after.change.kind is Kind.RECOVERY
            if not after.cordoned[machine].spared or not last or set(others) - taken:
                raise Violation(f"{machine} is cordoned, and was chosen for slot {slot}")


def _joiners(job: "Job") -> set[tuple[Slot, MachineId]]:
    return set() if job.change is None else set(job.change.joiners.items())
