# SPDX-License-Identifier: Apache-2.0
"""What the job believes that a machine does it was told to do, in the same moment; and what it is
believed to have proven is what its processes have said.

state      bound, warming, holding, starting, leaving: by that order; warm: by what it has said
proof      of a kind: the longest run of its processes, and their memory together
known_ms   of an order: the longest run that the machine has proven
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.compare.roles import kinds, representatives
from trainmover.controller.effects import Send
from trainmover.controller.events import WorkerSaid
from trainmover.controller.state import Attestation, Job, Machine, MachineState
from trainmover.ids import MachineId
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Decided, Replayed, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

TOLD: dict[MachineState, type[m.Order]] = {
    MachineState.BOUND: m.Bind,
    MachineState.WARMING: m.WarmUp,
    MachineState.HOLDING: m.Hold,
    MachineState.STARTING: m.StartWorkers,
    MachineState.LEAVING: m.Leave,
}
WORKED = (MachineState.WARMING, MachineState.HOLDING, MachineState.IDLE, MachineState.WARM)


class Works:
    """said: what each process of a machine has said of the run that it was told to make last."""

    def __init__(self) -> None:
        self.said: dict[MachineId, list[m.Warm | m.Held]] = {}

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided, Replayed: self.replayed}

    def replayed(self, moment: Replayed) -> None:
        if moment.torn:
            self.said.clear()

    def decided(self, moment: Decided) -> None:
        before, after, event = moment.before, moment.after, moment.event
        if after.code is not None:
            return
        if isinstance(event, WorkerSaid) and isinstance(event.fact, m.Warm | m.Held):
            self.said.setdefault(event.machine, []).append(event.fact)
        told: dict[MachineId, list[m.Order]] = {}
        for effect in moment.effects:
            if isinstance(effect, Send):
                told.setdefault(effect.machine, []).append(effect.order)
        if after.machines is not before.machines:
            for name, one in after.machines.items():
                old = before.machines.get(name)
                if old is not None and old.state is not one.state:
                    self._turns(after, old, one, told.get(name, []))
        for name, orders in told.items():
            for order in orders:
                if isinstance(order, m.WarmUp | m.Hold | m.Bind) and name in before.machines:
                    of = [job.machines[name] for job in (before, after) if name in job.machines]
                    if order.known_ms not in map(_longest_ms, of):
                        raise Violation(f"{name} is told {order}, and has proven {of}")
                if isinstance(order, m.WarmUp | m.Hold | m.StartWorkers):
                    self.said.pop(name, None)
                if isinstance(order, m.WarmUp | m.Hold):
                    _may_prepare(after, name, order)

    def _turns(self, job: Job, old: Machine, one: Machine, orders: list[m.Order]) -> None:
        what = f"{one.id} was {old.state} and is {one.state}"
        needed = TOLD.get(one.state)
        if needed is not None and not any(isinstance(order, needed) for order in orders):
            raise Violation(f"{what}, and was told {orders}")
        if one.state is MachineState.COLD and not one.note:
            raise Violation(f"{what}, and nobody says why")
        if one.state is MachineState.ACTIVE and job.slot_of(one.id) is None:
            raise Violation(f"{what}, and has no ranks")
        if one.state is MachineState.WARM:
            self._is_warm(job, old, one, what)

    def _is_warm(self, job: Job, old: Machine, one: Machine, what: str) -> None:
        if old.state not in WORKED:
            raise Violation(what)
        firsts = [first for first in kinds(job) if not one.why_unfit(first)]
        unproven = [first for first in firsts if first not in one.attests]
        if unproven and not one.once:
            raise Violation(f"{what}, and has never been {unproven}")
        if old.state is MachineState.HOLDING and one.held != old.work:
            raise Violation(f"{what}; it was to hold {old.work}, and holds {one.held}")
        said = self.said.get(one.id, [])
        if old.work is None or len(said) != job.spec.nproc:
            return
        first = representatives(job).get(old.work, old.work)
        proof = one.attests.get(first)
        if proof is not None and not _is_made_of(proof, said, had=old.attests.get(first)):
            raise Violation(f"{what}; its processes say {said}, and it has proven {proof}")


def _may_prepare(job: Job, machine: MachineId, order: m.WarmUp | m.Hold) -> None:
    """What ranks have recorded can be run, as far as that is wanted, while they still train."""
    if not job.all_recorded or job.finished or job.change is not None:
        raise Violation(f"{machine} is told {order}, and there is nothing to prepare for")
    readiness = job.spec.readiness
    if readiness == "idle" or (readiness == "warm" and isinstance(order, m.Hold)):
        raise Violation(f"{machine} is told {order}, and standbys are to be {readiness}")


def _longest_ms(machine: Machine) -> int:
    proven = [one for one in machine.attests.values() if not one.failed]
    return max((max(one.warm_ms, one.run_ms or 0) for one in proven), default=0)


def _is_made_of(
    proof: Attestation, said: list[m.Warm | m.Held], *, had: Attestation | None
) -> bool:
    if proof.failed:
        return False
    if all(isinstance(one, m.Warm) for one in said):
        ms = max(one.warm_ms for one in said if isinstance(one, m.Warm))
        return proof.warm_ms == ms and proof.held_bytes == sum(one.held_bytes for one in said)
    held = [one for one in said if isinstance(one, m.Held)]
    if len(held) < len(said):
        return True
    same = had is None or not had.warm_ms or proof.held_bytes == had.held_bytes
    return proof.run_ms == max(one.run_ms for one in held) and same
