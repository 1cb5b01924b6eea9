# SPDX-License-Identifier: Apache-2.0
"""How a plan comes on: what its making, moves and end have in common for both kinds. Pure."""

from collections.abc import Mapping, Sequence

from trainmover.controller.change.move import begin_moves
from trainmover.controller.effects import Decision
from trainmover.controller.policies.plans.known import Placement, Roll, Standing
from trainmover.controller.state import Cause, Job, Trigger, with_plan
from trainmover.controller.values import replace
from trainmover.ids import MachineId, Slot


def next_number(job: Job) -> int:
    """Of the plan that is to be made."""
    return 1 if job.plan is None else job.plan.number + 1


def done(job: Job, plan: Roll | Placement) -> Decision:
    """It has nothing more to do."""
    return with_plan(job, replace(plan, standing=Standing.DONE)), ()


def stopped(job: Job, plan: Roll | Placement, why: str) -> Decision:
    """It can go on."""
    return with_plan(job, replace(plan, standing=Standing.STOPPED, why=why)), ()


def moved(
    job: Job,
    plan: Roll | Placement,
    leavers: Sequence[MachineId],
    at_us: int,
    to: Mapping[Slot, MachineId] | None = None,
) -> Decision | str:
    """One move of the plan begins; or why it cannot, in a line."""
    trigger = Trigger.ROLL if isinstance(plan, Roll) else Trigger.PLACEMENT
    begun = begin_moves(job, leavers, Cause(trigger, plan.cause), request="", at_us=at_us, to=to)
    if isinstance(begun, str):
        return begun.splitlines()[0]
    job, effects = begun
    plan = replace(plan, incident=job.incidents[-1].number, moves=plan.moves + 1)
    return with_plan(job, plan), effects
