# SPDX-License-Identifier: Apache-2.0
"""A machine that is lost again and again stays out: half a minute after the second loss within an
hour, and each time twice as long."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.events import MachineJoined
from trainmover.ids import MachineId
from trainmover.simulator.happenings import Decided, Replayed, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

SECOND_US = 1_000_000


class Quarantine:
    """lost: when the job has lost each machine."""

    def __init__(self) -> None:
        self.lost: dict[MachineId, list[int]] = {}

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided, Replayed: self.replayed}

    def decided(self, moment: Decided) -> None:
        before, after, event = moment.before.machines, moment.after.machines, moment.event
        if before is after:
            return
        for machine in before.keys() - after.keys():
            self.lost.setdefault(machine, []).append(event.at_us)
        if isinstance(event, MachineJoined):
            self._may_be_in(event)

    def _may_be_in(self, event: MachineJoined) -> None:
        lately = [
            at for at in self.lost.get(event.machine, []) if event.at_us - at < 3600 * SECOND_US
        ]
        if len(lately) < 2:
            return
        out_us = 30 * SECOND_US << (len(lately) - 2)
        if event.at_us - lately[-1] < min(out_us, 3600 * SECOND_US):
            raise Violation(
                f"{event.machine} was lost {len(lately)} times, and is in again at once"
            )

    def replayed(self, moment: Replayed) -> None:
        """What was torn off is not known to anybody any more."""
        if moment.torn:
            self.lost = {name: [*times] for (name, _), times in moment.job.losses.items()}
