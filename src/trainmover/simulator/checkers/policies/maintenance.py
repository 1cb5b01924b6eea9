# SPDX-License-Identifier: Apache-2.0
"""Machines that are to go lose their ranks as soon as can be; a drain is all that was named."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.move import begin_moves
from trainmover.controller.events import DrainRequested
from trainmover.controller.state import Cause, Phase, Trigger
from trainmover.ids import MachineId
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.controller import Job
    from trainmover.simulator.world import World


class Maintenance:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        before, after = moment.before, moment.after
        if isinstance(moment.event, DrainRequested):
            self._all_or_none(before, after, moment.event)
        if before.change is None and after.change is None and after.phase is Phase.RUNNING:
            self._goes(after)

    @staticmethod
    def _all_or_none(before: "Job", after: "Job", event: DrainRequested) -> None:
        names = [MachineId(name) for name in event.machines]
        there = all(name in before.machines or name in before.cordoned for name in names)
        in_time = not event.until_us or event.until_us > event.at_us
        could = bool(names) and there and in_time and len(set(names)) == len(names)
        if not could or before.phase is not Phase.RUNNING:
            if after.cordoned != before.cordoned and not could:
                raise Violation(f"{event} cannot be done, and cordoned are {after.cordoned}")
            return
        left = [name for name in event.machines if name not in after.cordoned]
        if left:
            raise Violation(f"{event.machines} are drained, and {left} may take ranks")
        change = after.change
        if change is None or change.request != event.request:
            return
        seated = {name for name in event.machines if name in before.seats}
        if {*change.leavers.values()} != seated:
            raise Violation(f"{event.machines} are drained, and {change.leavers} are moved")

    @staticmethod
    def _goes(job: "Job") -> None:
        for name, cordon in job.cordoned.items():
            if not cordon.until_us:
                continue
            if job.spec.notices != "act":
                raise Violation(f"{name} takes no ranks, which nobody has asked for")
            if name not in job.seats:
                continue
            if not isinstance(
                begin_moves(job, [name], Cause(Trigger.MOVE, ""), request="", at_us=0), str
            ):
                raise Violation(f"{name} will be taken away, has ranks, and could be moved")
