# SPDX-License-Identifier: Apache-2.0
"""Plans, and how far they are: for people. Pure."""

from typing import Any

from trainmover.controller.policies.plans.known import Placement, Plan, Roll, Standing
from trainmover.controller.state import Job


def plan_json(job: Job, now_us: int) -> dict[str, Any] | None:
    """Of `trainmover status`: the newest; None if there was none."""
    plan = job.plan
    if plan is None:
        return None
    left, away, over = machines_of(job, plan)
    return {
        "kind": "roll" if isinstance(plan, Roll) else "placement",
        "number": plan.number,
        "reason": plan.reason,
        "since_s": max(0, now_us - plan.at_us) / 1e6,
        "standing": str(plan.standing),
        "why": plan.why,
        "moves": plan.moves,
        "left": left,
        "away": away,
        "over": over,
        "text": plan_text(job, plan),
    }


def machines_of(job: Job, plan: Plan) -> tuple[list[str], list[str], list[str]]:
    """Those yet to come, those whose turn it is, and those that are through.

    Of a placement: those that are to have a slot and have it not, none, and those that have it.
    """
    if isinstance(plan, Roll):
        return [*plan.left], [*plan.away], [*plan.over]
    assert isinstance(plan, Placement)
    pairs = list(zip(plan.seats, job.seats, strict=True))
    return [to for to, now in pairs if to != now], [], [to for to, now in pairs if to == now]


def plan_text(job: Job, plan: Plan) -> str:
    """One line of where it is."""
    left, away, over = machines_of(job, plan)
    moves = f"{plan.moves} move{'s' * (plan.moves != 1)}"
    through = f"{len(over)} of {len(over) + len(away) + len(left)} machines, {moves}"
    turn = f"; away: {', '.join(away)}" if away else ""
    if plan.standing is Standing.STOPPED:
        return f"{plan.title} has stopped: {plan.why} ({through}{turn})"
    return f"{plan.title} is {plan.standing}: {through}{turn}"


def plan_sentences(before: Job, after: Job) -> list[str]:
    """One if a plan has begun, stopped, or ended."""
    plan, old = after.plan, before.plan
    if plan is None or plan is old:
        return []
    if old is not None and (old.number, old.standing) == (plan.number, plan.standing):
        return []
    fresh = old is None or old.number != plan.number
    if plan.standing is Standing.STOPPED:
        return [f"{plan_text(after, plan)}: it goes on with trainmover plan continue"]
    if plan.standing is Standing.DONE:
        return [plan_text(after, plan)]
    why = f" ({plan.reason})" if plan.reason else ""
    return [f"{plan.title} {'begins' if fresh else 'goes on'}{why}"]
