# SPDX-License-Identifier: Apache-2.0
"""A plan does what was asked for and no more: it moves whom it names, as many at a time as may be,
and never waits for nobody. What it says is done is done.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.incidents import incident, open_incident
from trainmover.controller.policies.plans.known import Placement, Roll, Standing
from trainmover.controller.state import Job, Kind, MachineState, Phase
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

_SETTLED = (MachineState.WARM, MachineState.COLD)


class Plans:
    """rolled: machines that the roll `number` has moved."""

    def __init__(self) -> None:
        self.number = 0
        self.rolled: set[str] = set()

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        job, plan = moment.after, moment.after.plan
        if plan is None:
            return
        if plan.number != self.number:
            self.number, self.rolled = plan.number, set()
        if plan is not moment.before.plan:
            self._moves_whom_it_may(moment)
        if plan.standing is Standing.DONE and plan is not moment.before.plan:
            self._is_there(job)
        if plan.standing is Standing.GOING and _is_quiet(job) and _nobody_comes(job):
            raise Violation(f"plan {plan.number} waits for nobody: {plan}")

    def _moves_whom_it_may(self, moment: Decided) -> None:
        plan, job = moment.after.plan, moment.after
        assert plan is not None
        if isinstance(plan, Roll) and len(plan.away) > plan.at_once:
            raise Violation(f"{plan.away} are away at once, {plan.at_once} may be")
        old = moment.before.plan
        if old is None or plan.moves == old.moves or plan.number != old.number:
            return
        move = incident(job, plan.incident)
        leavers = [str(move.machine), *(leaver for leaver, _ in move.further)]
        if move.kind is not Kind.MOVE:
            raise Violation(f"plan {plan.number} takes incident {move.number} for its move")
        if isinstance(plan, Roll) and not set(leavers) <= {*plan.away}:
            raise Violation(f"{leavers} are moved by a roll, and it is not their turn")
        if isinstance(plan, Placement):
            right = [
                name for name in leavers if name == plan.seats[moment.before.seats.index(name)]
            ]
            if right:
                raise Violation(f"{right} are where they are to be, and are moved")

    def _is_there(self, job: Job) -> None:
        plan = job.plan
        if isinstance(plan, Placement) and plan.seats != job.seats:
            raise Violation(f"{plan.seats} is said to be there, and it is {job.seats}")
        if isinstance(plan, Roll) and (plan.left or plan.away):
            raise Violation(f"a roll is said to be done: {plan}")


def _is_quiet(job: Job) -> bool:
    """Nothing is under way that a plan waits for the end of."""
    return (
        job.phase is Phase.RUNNING
        and job.change is None
        and open_incident(job) is None
        and not job.finished
        and job.all_recorded
    )


def _nobody_comes(job: Job) -> bool:
    """Every machine is what it is going to be, and nobody is asked to let one return."""
    plan = job.plan
    if isinstance(plan, Roll) and plan.hold and any(name in job.cordoned for name in plan.away):
        return False
    spare = [machine for name, machine in job.machines.items() if name not in job.seats]
    return all(machine.state in _SETTLED for machine in spare if machine.id not in job.cordoned)
