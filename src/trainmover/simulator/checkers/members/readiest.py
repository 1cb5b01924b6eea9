# SPDX-License-Identifier: Apache-2.0
"""Whoever would take a slot now is the readiest there is, by the order that people are told.

Asked of jobs in which nothing is under way, for each machine as if it were lost that moment: who
has not failed for such a slot comes first, then who holds its run, who is warm, who is on its way
to be; then who holds no other run; then the first by name. Who is cordoned takes none, but where a
policy alone keeps it out and there are too few others. Only jobs in contact with all are asked.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.seats import without_machines
from trainmover.controller.compare.roles import representatives
from trainmover.controller.standby.joiners import can_be_spared, joiners_after_loss, no_standby
from trainmover.controller.state import Job, Machine, MachineState, Phase
from trainmover.ids import MachineId, Slot
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

EVERY = 30
"""Decisions, of which one is looked at."""
ORDER = (
    MachineState.WARM, MachineState.HOLDING, MachineState.WARMING, MachineState.IDLE,
    MachineState.LEAVING, MachineState.STARTING, MachineState.DOWN,
)  # fmt: skip


class Readiest:
    def __init__(self) -> None:
        self.decisions = 0

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        job = moment.after
        self.decisions += 1
        rests = job.phase is Phase.RUNNING and job.change is None and not job.finished
        if self.decisions % EVERY or not rests or job.away:
            return
        for name in job.seats:
            if name in job.machines:
                _is_replaced(job, name)
        _are_replaced(job, [name for name in job.seats if name in job.machines][:2])


def _is_replaced(job: Job, name: MachineId) -> None:
    slot, without = job.slot_of(name), without_machines(job, [name])
    assert slot is not None
    able = _able(without, spared=False) or _able(without, spared=True)
    chosen = joiners_after_loss(without, [slot], ())
    first = representatives(job).get(slot)
    best = min(able, key=lambda one: _readiness(one, slot, first), default=None)
    if chosen != ({} if best is None else {slot: best.id}):
        raise Violation(f"for slot {slot} of {name} the readiest is {best}, chosen is {chosen}")
    if can_be_spared(job, name) != bool(job.spec.wait_s or able):
        raise Violation(f"{name} can be spared: {able}, or {job.spec.wait_s} s are waited")
    _is_told(without)


def _are_replaced(job: Job, names: list[MachineId]) -> None:
    """As many as can be, each by another."""
    without = without_machines(job, names)
    chosen = joiners_after_loss(without, without.vacant(), ())
    able = {one.id for one in _able(without, spared=True)}
    if not {*chosen.values()} <= able or len({*chosen.values()}) < len(chosen):
        raise Violation(f"{names} would be replaced by {chosen}, and {able} could")
    if len(chosen) != min(len(names), len(able)):
        raise Violation(f"{names} would be replaced by {chosen} only, and {able} could")


def _able(job: Job, *, spared: bool) -> list[Machine]:
    """Machines without ranks that may take some; spared: also those that only a policy keeps out,
    for what may be worse there."""
    return [
        one
        for name, one in job.machines.items()
        if name not in job.seats
        and (name not in job.cordoned or (spared and job.cordoned[name].spared))
        and one.state in ORDER
        and not one.suspect
        and (not one.torch or not job.torch or one.torch == job.torch)
    ]


def _readiness(one: Machine, slot: Slot, first: Slot | None) -> tuple[object, ...]:
    proof = one.attests.get(first) if first is not None else None
    failed = proof is not None and bool(proof.failed)
    proven = proof is not None and not failed and not proof.stale
    warm = one.state is MachineState.WARM or (one.state is MachineState.IDLE and proven)
    holds = one.state is MachineState.WARM and one.held == slot
    state = MachineState.WARM if warm else one.state
    return failed, not holds, ORDER.index(state), one.held not in (None, slot), one.place


def _is_told(job: Job) -> None:
    """How many there are, and why others are none, is what a job that ends would say."""
    text = no_standby(job, "it is gone", 1)
    others = [name for name in job.machines if name not in job.seats]
    there = [name for name in others if name not in job.cordoned]
    left = f"and {len(there)} standby{'s are' if len(there) != 1 else ' is'} left"
    cold = [name for name in there if job.machines[name].state is MachineState.COLD]
    words = [f"{name} is cordoned" for name in others if name in job.cordoned]
    words += [f"; {name} " for name in cold if job.machines[name].note]
    if lacks := [one for one in (left, *words) if one not in text]:
        raise Violation(f"people would be told {text!r}, and not {lacks}")
