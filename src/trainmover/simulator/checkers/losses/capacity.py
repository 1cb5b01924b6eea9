# SPDX-License-Identifier: Apache-2.0
"""A job neither ends nor waits for want of a machine while one is there that could take the ranks.

There is whoever has joined, holds no ranks and is to take none, is not cordoned but by a policy
that finds it worse than others, has not failed in the sandbox, was not found to hold what is wrong,
and runs the torch of the ranks. Of a machine whose processes have ended it is that machine itself.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import End
from trainmover.controller.state import Job, Machine, MachineState
from trainmover.ids import MachineId
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

FOR_WANT = "must be replaced and"


class Capacity:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        job = moment.after
        change = job.change
        if change is not None and change.missing:
            taken = {*change.joiners.values()}
            for name in able(job):
                its_own = name in job.seats and job.seats.index(name) in change.missing
                if name not in taken and (its_own or name not in job.seats):
                    raise Violation(f"{name} could take ranks, and the job waits for a machine")
        for effect in moment.effects:
            if isinstance(effect, End) and FOR_WANT in effect.text and not moment.before.stopping:
                self._are_too_few(moment)

    def _are_too_few(self, moment: Decided) -> None:
        job = moment.after
        vacant = [name for name in job.seats if not _trains(job.machines.get(name))]
        here = [name for name in able(job) if name not in job.seats or name in vacant]
        if len(here) >= len(vacant):
            raise Violation(f"the job ends for want of {len(vacant)} machines: {here} are there")


def _trains(machine: Machine | None) -> bool:
    return machine is not None and machine.state is MachineState.ACTIVE


def able(job: Job) -> list[MachineId]:
    """Machines that could take ranks, or have them and have lost their processes."""
    return [
        name
        for name, machine in job.machines.items()
        if machine.state not in (MachineState.COLD, MachineState.BOUND, MachineState.ACTIVE)
        and (name not in job.cordoned or job.cordoned[name].spared or name in job.seats)
        and not (machine.suspect and name not in job.seats)
        and machine.torch in {"", *_torches(job)}
    ]


def _torches(job: Job) -> set[str]:
    """That of the ranks, also when none is left; before there is any, whatever comes."""
    return {job.torch} if job.torch else {machine.torch for machine in job.machines.values()}
