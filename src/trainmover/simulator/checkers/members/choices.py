# SPDX-License-Identifier: Apache-2.0
"""Who is chosen is who should be: to begin with, and in the place of another.

A job begins on the machines that were started for it, in natural order; standbys only begin in the
place of who was lost. Each keeps for another, if there is another. Later the readiest takes a slot:
who holds its run before all others, who is warm before who is not, if it has not failed for it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.compare.roles import representatives
from trainmover.controller.effects import Send
from trainmover.controller.state import Job, Machine, MachineState, Phase
from trainmover.ids import MachineId, Slot
from trainmover.protocol.messages import RunRank
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

LESS_READY = (
    MachineState.WARMING, MachineState.HOLDING, MachineState.LEAVING, MachineState.STARTING,
    MachineState.DOWN,
)  # fmt: skip


class Choices:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        before, after = moment.before, moment.after
        if before.phase is Phase.GATHERING and after.phase is Phase.RUNNING:
            _is_begun(before, after)
        for effect in moment.effects:
            if isinstance(effect, Send) and isinstance(effect.order, RunRank):
                _is_kept(after, effect.machine, effect.order)
        known = {} if before.change is None else before.change.joiners
        change = after.change
        if change is None or change.back or change.joiners is known or after.plan is not None:
            return
        for slot, name in change.joiners.items():
            if name == getattr(moment.event, "machine", None):
                continue  # What it has said with this event may have made it ready.
            if known.get(slot) != name and name in before.machines and after.seats[slot] != name:
                _is_readiest(before, after, slot, name)


def _is_begun(before: Job, after: Job) -> None:
    seats = [before.machines[name] for name in after.seats]
    if len(seats) != after.spec.machines or seats != sorted(seats, key=lambda one: one.place):
        raise Violation(f"{after.spec.machines} machines begin, in order: {after.seats}")
    standing_in = sum(one.standby for one in seats)
    spared = [
        one
        for one in after.machines.values()
        if not one.standby and one.id not in after.seats and one.id not in after.cordoned
    ]
    if after.takeovers:
        return
    if standing_in > after.lost_early or (standing_in and spared):
        raise Violation(f"{after.seats} begin, {after.lost_early} were lost, spared are {spared}")
    if len({one.torch for one in seats if one.torch}) > 1:
        raise Violation(f"{after.seats} begin, with torch {[one.torch for one in seats]}")


def _is_kept(job: Job, machine: MachineId, order: RunRank) -> None:
    """In another machine's vault, if there is another."""
    here = job.machines[machine]
    ranks = {*job.spec.ranks(order.slot)}
    others = {one.vault for one in job.machines.values() if one.id != machine}
    lacks = ranks - order.buddies.keys()
    alone = not others
    if (lacks and not alone) or order.buddies.keys() - ranks:
        raise Violation(f"{machine} has ranks {sorted(ranks)}, and is told {order}")
    if any(vault == here.vault for vault in order.buddies.values()) and not alone:
        raise Violation(f"{machine} is to keep what it has itself: {order}")
    if any(order.buddies.get(rank) == vault for rank, vault in order.further.items()):
        raise Violation(f"one machine is to have both copies: {order}")
    if job.seats[order.slot] != machine or order.epoch != job.epoch:
        raise Violation(f"{machine} is told {order}, and has slot {job.slot_of(machine)}")


def _is_readiest(before: Job, after: Job, slot: Slot, name: MachineId) -> None:
    assert after.change is not None
    taken = {*after.change.joiners.values(), *after.change.hedges.values(), *after.seats}
    chosen, first = before.machines[name], representatives(before).get(slot)
    if before.change is not None and before.change.hedges.get(slot) == name:
        return  # The first has not parked in time.
    for one in before.machines.values():
        if one.id in taken or one.id not in after.machines or one.id in before.cordoned:
            continue
        if one.id in before.away | after.away:
            continue
        if one.state is not MachineState.WARM or one.suspect or one.why_unfit(first):
            continue
        holds = one.held == slot
        chosen_holds = chosen.state is MachineState.WARM and chosen.held == slot
        if holds and not chosen_holds and _is_spare(before, chosen):
            raise Violation(f"{name} is to take slot {slot}, whose run {one.id} holds")
        if chosen.state in LESS_READY and _is_spare(before, chosen):
            raise Violation(f"{name}, {chosen.state}, is to take slot {slot}; {one.id} is warm")


def _is_spare(job: Job, machine: Machine) -> bool:
    return machine.id not in job.seats
