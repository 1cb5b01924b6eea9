# SPDX-License-Identifier: Apache-2.0
"""Every machine gives up its ranks once: for new firmware, a new kernel, new cables. Pure.

Standbys come first, so that ranks go to machines whose turn is over and each of them moves once.
Whose turn it is gets fresh processes as soon as it has no ranks, and is a standby again; or it is
cordoned until somebody says that it may return. The roll stops at the first problem, and goes on
when it is told to: a machine that could not give up its ranks is tried again then.
"""

from collections.abc import Sequence

from trainmover.controller.change.incidents import found
from trainmover.controller.change.move import unknown_machine, why_not_each_once
from trainmover.controller.change.seats import spare
from trainmover.controller.effects import Decision, Effect
from trainmover.controller.events import RollRequested
from trainmover.controller.policies.plans.known import Roll
from trainmover.controller.policies.plans.progress import done, moved, next_number, stopped
from trainmover.controller.policies.plans.standbys import coming, ready
from trainmover.controller.standby.warming import start_anew
from trainmover.controller.state import Cordon, Job, MachineState, Outcome, slots, with_plan
from trainmover.controller.values import replace
from trainmover.ids import MachineId


def roll_of(job: Job, event: RollRequested) -> Roll | str:
    """The roll that is asked for, or why there will be none."""
    for name in event.machines:
        if name not in job.machines:
            return unknown_machine(job, name)
    if why := why_not_each_once(event.machines):
        return why
    if event.at_once < 1:
        return f"{event.at_once} machines at once are none.\nNothing was done.\nGive 1 or more."
    names = [MachineId(name) for name in event.machines] or [*job.machines]
    seated = slots(job)
    in_order = sorted(names, key=lambda name: (name in seated, job.machines[name].place))
    if not spare(job):
        return (
            "There is no standby to take ranks.\nNothing was done.\n"
            "Add one: trainmover add, or trainmover agent on another host."
        )
    return Roll(
        number=next_number(job),
        reason=event.reason,
        at_us=event.at_us,
        at_once=event.at_once,
        hold=event.hold,
        left=tuple(in_order),
    )


def go_on(job: Job, roll: Roll) -> Roll:
    """Those that still have their ranks, or could not become standbys, have their turn again."""
    again = [name for name in roll.away if name in slots(job) or not roll.hold]
    return replace(
        roll,
        left=tuple(name for name in (*again, *roll.left) if name in job.machines),
        away=tuple(name for name in roll.away if name not in again),
        renewed=(),
    )


def advance_roll(job: Job, roll: Roll, at_us: int) -> Decision:
    """Nothing is under way: who is a standby again is over, and the next give up their ranks."""
    over = tuple(name for name in roll.away if _is_back(job, roll, name))
    away = tuple(name for name in roll.away if name not in over)
    roll = replace(roll, over=(*roll.over, *over), away=away)
    if problem := _problem(job, roll):
        return stopped(job, roll, problem)
    if not roll.left and not roll.away:
        return done(job, roll)
    job, renewed = _renew(with_plan(job, roll))
    job, moving = _next(job, at_us)
    return job, renewed + moving


def _is_back(job: Job, roll: Roll, name: MachineId) -> bool:
    """Whether it is a standby again, of fresh processes where it is to have some."""
    machine = job.machines.get(name)
    if name in slots(job) or (roll.hold and name in job.cordoned):
        return False
    if machine is None:
        return roll.hold  # Somebody who has uncordoned it does without it.
    if name in job.cordoned:  # By somebody else: it is not warmed up.
        return machine.state is not MachineState.LEAVING
    return machine.state is MachineState.WARM and (roll.hold or name in roll.renewed)


def _problem(job: Job, roll: Roll) -> str:
    """Why it is not to go on."""
    for name in (*roll.left, *(() if roll.hold else roll.away)):
        if name not in job.machines:
            return f"{name} was lost"
    for name in roll.away:
        machine = job.machines.get(name)
        if name in slots(job):
            move = found(job, roll.incident)
            failed = move is not None and move.outcome is not Outcome.DONE
            return f"{name} has ranks" + (f": {move.note}" if move is not None and failed else "")
        fresh = roll.hold or name in roll.renewed  # Else it gets fresh processes yet.
        cold = machine is not None and machine.state is MachineState.COLD
        if machine is not None and cold and fresh and name not in job.cordoned:
            return f"{name} is no standby any more: {machine.note}"
    return ""


def _renew(job: Job) -> Decision:
    """Fresh processes for those that have given up their ranks and are through with the script."""
    roll = job.plan
    assert isinstance(roll, Roll)
    effects: tuple[Effect, ...] = ()
    for name in () if roll.hold else roll.away:
        if name not in roll.renewed and job.machines[name].state is not MachineState.LEAVING:
            job, started = start_anew(job, name)
            roll = replace(roll, renewed=(*roll.renewed, name))
            effects += started
    return with_plan(job, roll), effects


def _next(job: Job, at_us: int) -> Decision:
    """Those whose turn comes now, as many as may be away, and as there are standbys for."""
    roll = job.plan
    assert isinstance(roll, Roll)
    some = roll.left[: max(roll.at_once - len(roll.away), 0)]
    if idle := [name for name in some if name not in slots(job)]:
        return _take(job, roll, idle, at_us)
    able = ready(job, but_for={*roll.left, *roll.away})
    some = some[: len(able)]
    if some:
        return _vacate(job, roll, some, at_us)
    waits = roll.away or not roll.left or coming(job, but_for={*roll.left})
    if waits or len(roll.away) >= roll.at_once:
        return job, ()
    return stopped(job, roll, f"no standby can take the ranks of {roll.left[0]}")


def _take(job: Job, roll: Roll, names: Sequence[MachineId], at_us: int) -> Decision:
    """Machines without ranks: there is nothing to move."""
    roll = _in_turn(roll, names)
    return with_plan(_held(job, roll, names, at_us), roll), ()


def _vacate(job: Job, roll: Roll, names: Sequence[MachineId], at_us: int) -> Decision:
    roll = _in_turn(roll, names)
    begun = moved(_held(job, roll, names, at_us), roll, names, at_us)
    return stopped(job, roll, begun) if isinstance(begun, str) else begun


def _in_turn(roll: Roll, names: Sequence[MachineId]) -> Roll:
    left = tuple(name for name in roll.left if name not in names)
    return replace(roll, left=left, away=(*roll.away, *names))


def _held(job: Job, roll: Roll, names: Sequence[MachineId], at_us: int) -> Job:
    """Cordoned, where they are to be; by somebody else they may be already."""
    if not roll.hold:
        return job
    cordon = Cordon(at_us, roll.cause)
    fresh = {name: cordon for name in names if name not in job.cordoned}
    return replace(job, cordoned={**job.cordoned, **fresh})
