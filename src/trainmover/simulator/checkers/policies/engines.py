# SPDX-License-Identifier: Apache-2.0
"""A job with an engine: it never ends for want of a machine, gives back none that it needs, and
holds no more than it wants."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import End, Release
from trainmover.controller.policies.capacity.known import Returned
from trainmover.controller.state import Job, Phase
from trainmover.ids import MachineId
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

FOR_WANT = "must be replaced and"
HAS_A_FAULT = (Returned.DRAINED, Returned.UNFIT, Returned.LATE, Returned.LOST, Returned.TWICE)


class Engines:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided} if world.spec.engine else {}

    def decided(self, moment: Decided) -> None:
        for effect in moment.effects:
            if isinstance(effect, Release):
                self._is_free(moment, effect)
            if isinstance(effect, End) and FOR_WANT in effect.text and not moment.before.finished:
                raise Violation(f"a job with an engine ends: {effect.text}")
        self._holds_no_more(moment.after)

    def _is_free(self, moment: Decided, effect: Release) -> None:
        after, name = moment.after, effect.machine
        if name in after.machines and (name in after.seats or name in _takes(after)):
            raise Violation(f"{name} is given back ({effect.why}), and has ranks")
        if effect.why not in HAS_A_FAULT and name in after.machines:
            spec, back = after.spec, _given_back(after)
            well = [one for one in after.machines if one not in back]
            if len(well) < spec.machines + spec.standbys:
                raise Violation(f"{name} is given back ({effect.why}); {len(well)} are left")

    def _holds_no_more(self, job: Job) -> None:
        """Of what is to come there is never more than is lacking; what is there may be too much
        only until a change is over."""
        back = _given_back(job)
        stays = [n for n in job.machines if n not in back and not _goes(job, n)]
        lacking = job.spec.machines + job.spec.standbys - len(stays)
        missing = len(job.change.missing) if job.change is not None else 0
        at_work = job.phase in (Phase.GATHERING, Phase.STARTING, Phase.RUNNING)
        if not job.capacity.wants or not at_work or job.stopping:
            return  # What was granted is on its way.
        if job.capacity.to_come > max(lacking, missing, 0):
            raise Violation(f"{job.capacity.to_come} machines are to come, {lacking} lack")


def _takes(job: Job) -> set[MachineId]:
    change = job.change
    return set() if change is None else {*change.joiners.values(), *change.hedges.values()}


def _given_back(job: Job) -> set[MachineId]:
    grants = job.capacity.grants
    return {name for name, grant in grants.items() if grant.returned is not None}


def _goes(job: Job, name: MachineId) -> bool:
    cordon = job.cordoned.get(name)
    return cordon is not None and bool(cordon.until_us or cordon.drained or cordon.failing)
