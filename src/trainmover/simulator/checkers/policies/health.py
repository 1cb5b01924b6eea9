# SPDX-License-Identifier: Apache-2.0
"""Where `--health act` is given no machine takes ranks before it has passed its examination, or
after it has failed, unless somebody has uncordoned it; and every examination ends."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.events import UncordonRequested
from trainmover.controller.state import MachineState, Phase
from trainmover.ids import MachineId
from trainmover.simulator.happenings import Decided, Replayed, Violation

if TYPE_CHECKING:
    from trainmover.controller import Job
    from trainmover.simulator.world import World

ENDS_US = 90_000_000
"""An examination takes a minute at most, and is told of where links break."""


class Health:
    def __init__(self) -> None:
        self.let_in: set[MachineId] = set()
        self.since_us: dict[tuple[MachineId, int], int] = {}

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Decided: self.decided, Replayed: self.replayed}

    def decided(self, moment: Decided) -> None:
        before, after = moment.before, moment.after
        if isinstance(moment.event, UncordonRequested):
            self.let_in.add(MachineId(moment.event.machine))
        if after.spec.health == "act":
            for machine in _in_use(after) - _in_use(before) - self.let_in:
                self._has_passed(after, machine)
        self._ends(after, moment.event.at_us)

    def replayed(self, moment: Replayed) -> None:
        self.since_us.clear()

    def _has_passed(self, job: "Job", machine: MachineId) -> None:
        one = job.health.of.get(machine)
        if one is None or (one.judged and one.failed):
            raise Violation(f"{machine} takes ranks, and its health is {one}")
        if not one.told and one.number == 1:
            raise Violation(f"{machine} takes ranks, and was never examined")

    def _ends(self, job: "Job", at_us: int) -> None:
        waiting = {(name, one.number) for name, one in job.health.of.items() if not one.judged}
        self.since_us = {key: self.since_us.get(key, at_us) for key in waiting}
        if job.phase is not Phase.RUNNING:
            return
        for machine, one in job.health.of.items():
            if one.told and not one.judged:
                raise Violation(f"{machine} was examined, and nobody says how it is")
        for (machine, number), since_us in self.since_us.items():
            if at_us - since_us > ENDS_US:
                raise Violation(f"examination {number} of {machine} does not end")


def _in_use(job: "Job") -> set[MachineId]:
    """Those that hold ranks, or are to."""
    if job.phase is Phase.GATHERING:
        return set()
    joiners = set() if job.change is None else {*job.change.joiners.values()}
    held = {name for name in job.seats if name in job.machines}
    return joiners | {name for name in held if job.machines[name].state is MachineState.ACTIVE}
