# SPDX-License-Identifier: Apache-2.0
"""A plan begins, is stopped, goes on; one at a time. Pure.

It makes a move when nothing else is under way: what has diverged goes before it, then what is
about to be taken away by its owner. Losses are recovered from as ever. A plan that is going takes
standbys before new ones are looked after.
"""

from trainmover.controller.change.incidents import open_incident
from trainmover.controller.change.move import why_not_running
from trainmover.controller.effects import Answer, Decision
from trainmover.controller.events import PlaceRequested, PlanSteered, RollRequested
from trainmover.controller.listed import some_of
from trainmover.controller.policies.plans.known import Placement, Plan, Roll, Standing
from trainmover.controller.policies.plans.place import advance_placement, placement_of
from trainmover.controller.policies.plans.roll import advance_roll, go_on, roll_of
from trainmover.controller.state import Job, with_plan
from trainmover.controller.values import kept_for, replace

NAMED_MAX = 16
"""In an answer."""


def begin_plan(job: Job, event: RollRequested | PlaceRequested) -> Decision:
    """Answered at once: it may take hours. Its moves begin as soon as nothing is under way."""
    if why := why_not_running(job):
        return job, (Answer(event.request, ok=False, text=why),)
    if job.plan is not None and job.plan.standing is Standing.GOING:
        text = (
            f"{job.plan.title} is going on.\nNothing was done.\n"
            "Wait for its end (trainmover status), or stop it: trainmover plan stop"
        )
        return job, (Answer(event.request, ok=False, text=text),)
    plan = roll_of(job, event) if isinstance(event, RollRequested) else placement_of(job, event)
    if isinstance(plan, str):
        return job, (Answer(event.request, ok=False, text=plan),)
    job = with_plan(job, plan)
    return job, (Answer(event.request, ok=True, text=f"{plan.title} begins: {_what(plan)}."),)


def steer_plan(job: Job, event: PlanSteered) -> Decision:
    """Stop it, or let it go on. A move that is under way comes to its end either way."""
    plan = job.plan
    if plan is None:
        text = "There is no plan.\nNothing was done.\nBegin one: trainmover roll, or place."
        return job, (Answer(event.request, ok=False, text=text),)
    wanted = Standing.STOPPED if event.going else Standing.GOING
    if plan.standing is not wanted:
        text = f"{plan.title} is {plan.standing}.\nNothing was done.\nThe job goes on."
        return job, (Answer(event.request, ok=False, text=text),)
    if not event.going:
        plan = replace(plan, standing=Standing.STOPPED, why=event.reason or "somebody stopped it")
        text = f"{plan.title} has stopped; it can go on: trainmover plan continue"
        return with_plan(job, plan), (Answer(event.request, ok=True, text=text),)
    plan = go_on(job, plan) if isinstance(plan, Roll) else plan
    plan = replace(plan, standing=Standing.GOING, why="", incident=0)
    text = f"{plan.title} goes on."
    return with_plan(job, plan), (Answer(event.request, ok=True, text=text),)


def tend_plan(job: Job, at_us: int) -> Decision:
    """While no change is under way: what it does next, if anything."""
    plan = job.plan
    if plan is None or plan.standing is not Standing.GOING or open_incident(job) is not None:
        return job, ()
    if job.finished or not job.all_recorded or _rests(job):
        return job, ()  # The script is ending, or no move can begin yet.
    return _advanced(job, at_us)


@kept_for("machines", "seats", "cordoned", "incidents", "roll", "placement")
def _rests(job: Job) -> bool:
    """Whether there is nothing to do as things are: of most events nothing of that changes."""
    return _advanced(job, 0)[0] is job


def _advanced(job: Job, at_us: int) -> Decision:
    plan = job.plan
    match plan:
        case Roll():
            return advance_roll(job, plan, at_us)
        case Placement():
            return advance_placement(job, plan, at_us)
        case _:
            raise AssertionError(plan)


def _what(plan: Plan) -> str:
    if isinstance(plan, Roll):
        return f"{some_of(plan.left, NAMED_MAX, 'more')}, in this order, {plan.at_once} at a time"
    assert isinstance(plan, Placement)
    return some_of(
        [f"slot {slot} to {name}" for slot, name in enumerate(plan.seats)], NAMED_MAX, "more"
    )
