# SPDX-License-Identifier: Apache-2.0
"""Several machines at once are cordoned, and their ranks moved, as one change. Pure.

All of it or nothing is moved; the cordons stand either way, so that no rank comes to a machine that
is to go. A deadline that moves of this job would mostly miss is said as the move begins, which is
worth a try all the same: until the switchover nothing is lost by it.
"""

from trainmover.controller.change.incidents import amend
from trainmover.controller.change.move import begin_moves, unknown_machine, why_not_each_once
from trainmover.controller.change.seats import cordoned_by_people, with_cordon
from trainmover.controller.effects import Answer, Decision
from trainmover.controller.events import DrainRequested
from trainmover.controller.policies.maintenance.lateness import may_be_late
from trainmover.controller.state import Cause, Job, Kind, Trigger
from trainmover.controller.values import replace
from trainmover.ids import MachineId


def drain(job: Job, event: DrainRequested) -> Decision:
    """Answered when the ranks are elsewhere, or at once where there are none, or it cannot be."""
    if why := _why_not(job, event):
        return job, (Answer(event.request, ok=False, text=why),)
    names = [MachineId(name) for name in event.machines]
    for name in names:
        job = cordoned_by_people(job, name, event.reason, event.at_us)
        if job.spec.engine:  # Which has another machine for it, and takes this one back.
            job = with_cordon(job, name, replace(job.cordoned[name], drained=True))
    seated = [name for name in names if name in job.seats]
    cordoned = f"{_named(names)} {'is' if len(names) == 1 else 'are'} cordoned"
    if not seated:
        text = f"{cordoned}: {'it takes' if len(names) == 1 else 'they take'} no ranks."
        return job, (Answer(event.request, ok=True, text=text),)
    if _leave_already(job, seated):
        return _to_be_told(job, event.request), ()
    cause = Cause(Trigger.DRAIN, "a move was asked for" + _why(job, event))
    begun = begin_moves(job, seated, cause, request=event.request, at_us=event.at_us)
    if isinstance(begun, str):
        return job, (Answer(event.request, ok=False, text=f"{cordoned}. {begun}"),)
    return begun


def _leave_already(job: Job, names: list[MachineId]) -> bool:
    """Whether the change under way moves the ranks of just these, and nobody waits for it."""
    change = job.change
    if change is None or change.kind is not Kind.MOVE or change.request:
        return False
    return set(change.leavers.values()) == set(names)


def _to_be_told(job: Job, request: str) -> Job:
    """The job with somebody who waits for the move under way."""
    change = job.change
    assert change is not None
    job = amend(job, change.incident, request=request)
    return replace(job, change=replace(change, request=request))


def _why_not(job: Job, event: DrainRequested) -> str:
    """Why nothing at all is done; "" if something is."""
    names = event.machines
    if not names:
        return "No machine was named.\nNothing was done.\nName one: trainmover drain m2"
    for name in names:
        if name not in job.machines and name not in job.cordoned:
            return unknown_machine(job, name)
    if twice := why_not_each_once(names):
        return twice
    if event.until_us and event.until_us <= event.at_us:
        return "The deadline is over.\nNothing was done.\nGive one that is yet to come, or none."
    return ""


def _why(job: Job, event: DrainRequested) -> str:
    """What he gave as reason, and whether it is likely to be done in time."""
    late = may_be_late(job, event.until_us - event.at_us) if event.until_us else ""
    said = "; ".join(one for one in (event.reason, late) if one)
    return f": {said}" if said else ""


def _named(names: list[MachineId]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
