# SPDX-License-Identifier: Apache-2.0
"""What it is said to cost if a slot is lost is made of what was measured, and of nothing else.

start, run   of fresh processes, and of the script, where the standby does not hold that run
state        as fast as state has travelled; before any has, by the memory of a run
fixed        between the least and the most that recoveries of this job have taken beside that
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.incidents import lately
from trainmover.controller.compare.roles import kinds, representatives
from trainmover.controller.standby.attest import (
    FIXED_MS,
    START_MS,
    STATE_BYTES_PER_MS,
    predicted_ms,
)
from trainmover.controller.state import Attestation, Job, Kind, Machine, MachineState, Outcome
from trainmover.ids import Slot
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

EVERY = 40
"""Decisions, of which one is looked at."""
LITTLE_MS = 0.001


class Predictions:
    def __init__(self) -> None:
        self.decisions = 0

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        self.decisions += 1
        if self.decisions % EVERY:
            return
        job = moment.after
        for machine in job.machines.values():
            if machine.state is MachineState.WARM:
                for first in kinds(job):
                    self._is_made_of(job, machine, first)

    @staticmethod
    def _is_made_of(job: Job, machine: Machine, first: Slot) -> None:
        proof, said = machine.attests.get(first), predicted_ms(job, machine, first)
        if proof is None or proof.failed:
            if said is not None:
                raise Violation(f"{machine.id} cannot be {first}, and that would cost {said} ms")
            return
        holds = machine.held is not None and representatives(job).get(machine.held) == first
        run = proof.warm_ms if proof.run_ms is None else proof.run_ms
        start = START_MS if machine.once else 0.0
        known = (0.0 if holds else start + run) + _state_ms(job, proof)
        fixed = _fixed(job)
        least, most = known + min(fixed) - LITTLE_MS, known + max(fixed) + LITTLE_MS
        if said is None or not least <= said <= most:
            raise Violation(
                f"{machine.id} has proven {proof}, and as {first} it would cost {said} ms, "
                f"which is not between {least} and {most}"
            )


def _state_ms(job: Job, proof: Attestation) -> float:
    moved = [one for incident in lately(job) for one in incident.certificates if one.bytes]
    took_ms = sum(one.state_ms for one in moved)
    if not took_ms:
        return proof.held_bytes / STATE_BYTES_PER_MS
    newest = moved[-1]
    size = (newest.bytes + newest.held) * job.spec.nproc
    return size * took_ms / sum(one.bytes for one in moved)


def _fixed(job: Job) -> list[float]:
    """Of each recovery in place that is over, all but the run and the way of the state."""
    known = []
    for one in lately(job):
        through = one.kind is Kind.RECOVERY and one.rung == 1 and one.outcome is Outcome.DONE
        if through and one.downtime_ms is not None:
            beside = one.phases_ms.get("bind", 0.0) + one.phases_ms.get("state", 0.0)
            known.append(max(one.downtime_ms - beside, 0.0))
    return known or [FIXED_MS]
