# SPDX-License-Identifier: Apache-2.0
"""What a standby has proven, kind by kind, and what its joining would cost. Pure.

The predicted downtime of a loss is the sum of three parts, each measured as far as it can be:

    run     the script's second run on the joiner; none for a slot whose run it holds
    state   bytes of state over the rate at which it travelled in past incidents
    fixed   what else past recoveries took: detection, drain, verdict, switchover, first step
"""

import statistics

from trainmover.controller.change.incidents import lately
from trainmover.controller.change.seats import with_machine
from trainmover.controller.compare.roles import kinds, representatives
from trainmover.controller.state import Attestation, Job, Kind, Machine, Outcome
from trainmover.controller.values import replace
from trainmover.ids import MachineId, Slot
from trainmover.protocol.messages import Held, Warm

STATE_BYTES_PER_MS = 500_000
"""Before any state has travelled: half a gigabyte a second."""
FIXED_MS = 200.0
"""Before any recovery is through."""
START_MS = 4000.0
"""Fresh processes, which import torch, before a run on a machine where each run needs them."""


def kind_due(job: Job, machine: Machine) -> Slot | None:
    """The next kind to warm, by its first slot; None if all have been tried lately."""
    for first in kinds(job):
        attest = machine.attests.get(first)
        if attest is None or attest.stale:
            return first
    return None


def fit_kinds(job: Job, machine: Machine) -> list[Slot]:
    """First slots of the kinds that `machine` has not failed."""
    return [first for first in kinds(job) if not machine.why_unfit(first)]


def note_of(job: Job, machine: Machine) -> str:
    """What is to be known of a standby that cannot do everything at once; "" otherwise."""
    notes = [_ONCE.format(machine.once)] if machine.once else []
    for first, slots in kinds(job).items():
        if reason := machine.why_unfit(first):
            ranks = ", ".join(str(rank) for slot in slots for rank in job.spec.ranks(slot))
            notes.append(f"cannot be rank {ranks}: {reason}")
    return "; ".join(notes)


_ONCE = "the script cannot run twice in one process ({}), so every run gets fresh ones"


def attest_warm(job: Job, machine: MachineId, first: Slot, fact: Warm, at_us: int) -> Job:
    """One worker has warmed up. Several of a machine add up: their memory, and the longest run."""
    before = _under_way(job.machines[machine], first, at_us)
    attest = replace(
        before,
        at_us=at_us,
        warm_ms=max(before.warm_ms, fact.warm_ms),
        held_bytes=before.held_bytes + fact.held_bytes,
        device_bytes=before.device_bytes + fact.device_bytes,
        stale=job.machines[machine].outdated,
    )
    return _with_attest(job, machine, first, attest)


def attest_held(job: Job, machine: MachineId, first: Slot, fact: Held, at_us: int) -> Job:
    """One worker holds its run: the trace was equal once more, and binding has a measure.

    Its memory counts only in a process that had none for a run before: a second run takes the same.
    """
    current = job.machines[machine]
    before = current.attests.get(first, Attestation(at_us))
    if not current.said:
        before = replace(before, run_ms=0)
        if not before.warm_ms:
            before = replace(before, held_bytes=0, device_bytes=0)
    first_run = not before.warm_ms
    attest = replace(
        before,
        at_us=at_us,
        run_ms=max(before.run_ms or 0, fact.run_ms),
        held_bytes=before.held_bytes + first_run * fact.held_bytes,
        device_bytes=before.device_bytes + first_run * fact.device_bytes,
        failed="",
        stale=False,
    )
    return _with_attest(job, machine, first, attest)


def attest_failure(job: Job, machine: MachineId, first: Slot, reason: str, at_us: int) -> Job:
    """The machine cannot take slots of this kind."""
    return _with_attest(job, machine, first, Attestation(at_us, failed=reason))


def known_ms(machine: Machine) -> int:
    """The longest run in the sandbox that it has proven: what another may be measured by."""
    took = [(one.warm_ms, one.run_ms or 0) for one in machine.attests.values() if not one.failed]
    return max((max(each) for each in took), default=0)


def stale(machine: Machine) -> dict[Slot, Attestation]:
    """Its attestations, all to be proven again."""
    return {first: replace(attest, stale=True) for first, attest in machine.attests.items()}


def _under_way(machine: Machine, first: Slot, at_us: int) -> Attestation:
    """What the workers of a machine have attested so far in the present warm-up."""
    before = machine.attests.get(first)
    if before is None:
        return Attestation(at_us)
    return before if machine.said else Attestation(at_us, run_ms=before.run_ms)


def _with_attest(job: Job, machine: MachineId, first: Slot, attest: Attestation) -> Job:
    attests = {**job.machines[machine].attests, first: attest}
    return with_machine(job, machine, attests=attests)


def predicted_ms(
    job: Job, machine: Machine, first: Slot, *, other_held: bool = False
) -> float | None:
    """Downtime if a slot of this kind is lost now; None if nothing is proven for it.

    Of several slots of the kind the one whose run is held counts: that is the one most likely
    needed. With `other_held` it is one whose run is not held.
    """
    attest = machine.attests.get(first)
    if attest is None or attest.failed:
        return None
    holds = machine.held is not None and representatives(job).get(machine.held) == first
    holds = holds and not other_held
    run = 0.0 if holds else float(attest.run_ms if attest.run_ms is not None else attest.warm_ms)
    start = START_MS if machine.once and not holds else 0.0
    return start + run + _state_ms(job, attest) + _fixed_ms(job)


def _state_ms(job: Job, attest: Attestation) -> float:
    """The newest state that travelled says how large it is, with what was there already: after a
    loss nothing is. Before, a run's memory bounds it."""
    certificates = [c for incident in lately(job) for c in incident.certificates if c.bytes]
    took_ms = sum(c.state_ms for c in certificates)
    if took_ms <= 0:
        return attest.held_bytes / STATE_BYTES_PER_MS
    rate = sum(c.bytes for c in certificates) / took_ms
    newest = certificates[-1]
    return (newest.bytes + newest.held) * job.spec.nproc / rate


def _fixed_ms(job: Job) -> float:
    past = [
        max(0.0, incident.downtime_ms - phases.get("bind", 0.0) - phases.get("state", 0.0))
        for incident in lately(job)
        if incident.kind is Kind.RECOVERY
        and incident.rung == 1
        and incident.outcome is Outcome.DONE
        and incident.downtime_ms is not None
        for phases in [incident.phases_ms]
    ]
    return statistics.median(past) if past else FIXED_MS
