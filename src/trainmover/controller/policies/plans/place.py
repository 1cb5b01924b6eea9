# SPDX-License-Identifier: Apache-2.0
"""Every slot goes to the machine that is to have it: racks, switches, power. Pure.

Machines that are free take their slots, all of them as one change: those that they leave are free
next. Where all that are left have each other's, one rank of each ring goes
to another standby first, and comes from there at the end. So a plan takes one move for each slot,
and one more for each ring.
"""

from collections.abc import Iterator, Mapping

from trainmover.controller.change.incidents import found
from trainmover.controller.change.move import unknown_machine, why_not_each_once
from trainmover.controller.change.seats import at_hand, other_torch
from trainmover.controller.effects import Decision
from trainmover.controller.events import PlaceRequested
from trainmover.controller.policies.plans.known import Placement
from trainmover.controller.policies.plans.progress import done, moved, next_number, stopped
from trainmover.controller.policies.plans.standbys import coming, ready
from trainmover.controller.state import Job, MachineState, Outcome, slots
from trainmover.ids import MachineId, Slot

_RINGS = (
    "Machines are to exchange their ranks, and there is no other standby to put some on.\n"
    "Nothing was done.\nAdd one: trainmover add, or trainmover agent on another host."
)


def placement_of(job: Job, event: PlaceRequested) -> Placement | str:
    """The one that is asked for, or why there will be none."""
    if len(event.seats) != len(job.seats):
        return (
            f"{len(event.seats)} machines were named for {len(job.seats)} slots.\n"
            "Nothing was done.\nName one for each slot; trainmover status shows who has which."
        )
    for name in event.seats:
        if name not in job.machines:
            return unknown_machine(job, name)
    if twice := why_not_each_once(event.seats):
        return twice
    seats = tuple(MachineId(name) for name in event.seats)
    wanted = _wanted(job, seats)
    for name in wanted.values():
        if why := _why_not(job, name):
            return f"{why}.\nNothing was done.\nName another machine for its slot."
    if [*_rings(job, wanted)] and not _others(job, seats):
        return _RINGS
    return Placement(
        number=next_number(job),
        reason=event.reason,
        at_us=event.at_us,
        seats=seats,
    )


def advance_placement(job: Job, plan: Placement, at_us: int) -> Decision:
    """Nothing is under way: the next moves, all that can be made at once."""
    wanted = _wanted(job, plan.seats)
    if not wanted:
        return done(job, plan)
    if problem := _problem(job, plan, wanted):
        return stopped(job, plan, problem)
    free = {name for name in wanted.values() if name not in slots(job)}
    if not free.isdisjoint(coming(job)):
        return job, ()  # All that can be one change are one: each pause counts.
    to = {slot: name for slot, name in wanted.items() if name in free}
    others = ready(job, but_for={*plan.seats})
    to |= dict(zip(_rings(job, wanted), others, strict=False))
    if to:
        leavers = [job.seats[slot] for slot in to]
        begun = moved(job, plan, leavers, at_us, to)
        return stopped(job, plan, begun) if isinstance(begun, str) else begun
    if coming(job):
        return job, ()
    return stopped(job, plan, "no standby can take ranks")


def _wanted(job: Job, seats: tuple[MachineId, ...]) -> dict[Slot, MachineId]:
    """Slots that are not where they are to be, and where that is."""
    return {Slot(slot): to for slot, to in enumerate(seats) if to != job.seats[slot]}


def _others(job: Job, seats: tuple[MachineId, ...]) -> list[MachineId]:
    """Standbys that are to have no slot."""
    to_have = {*seats}
    return [
        machine.id
        for machine in at_hand(job)
        if machine.id not in to_have and not _why_not(job, machine.id)
    ]


def _why_not(job: Job, name: MachineId) -> str:
    """Why a machine cannot take a slot that it does not have."""
    machine = job.machines.get(name)
    if machine is None:
        return f"{name} was lost"
    if name in job.cordoned:
        return f"{name} is cordoned"
    if other := other_torch(job, machine) or machine.suspect:
        return f"{name} can take no ranks: {other}"
    if machine.state is MachineState.COLD:
        return f"{name} can take no ranks: {machine.note}"
    return ""


def _rings(job: Job, wanted: Mapping[Slot, MachineId]) -> Iterator[Slot]:
    """A slot of each ring: its machine is to have the next one's, and so on, round to it."""
    slot_of = {job.seats[slot]: slot for slot in wanted}
    seen: set[Slot] = set()
    for first in wanted:
        path: list[Slot] = []
        slot: Slot | None = first
        while slot is not None and slot not in seen:
            seen.add(slot)
            path.append(slot)
            slot = slot_of.get(wanted[slot])
        if slot in path:
            yield min(path[path.index(slot) :])


def _problem(job: Job, plan: Placement, wanted: Mapping[Slot, MachineId]) -> str:
    """Why it is not to go on."""
    move = found(job, plan.incident)
    if move is not None and move.outcome not in (Outcome.OPEN, Outcome.DONE):
        return f"its last move came to nothing: {move.note}"
    return next((why for name in wanted.values() if (why := _why_not(job, name))), "")
