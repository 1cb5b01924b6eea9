# SPDX-License-Identifier: Apache-2.0
"""How machines without ranks are made ready, and kept so. Pure.

    idle -> warming, one slot of each kind after the other -> holding -> warm

The last run is not unwound but held at its first step, as the slot most likely needed: a joiner for
that slot is parked at once. While a change is under way nothing is begun here; machines go on with
what they were told. Where the script cannot run twice in one process, fresh ones make the run to be
held and nothing else.
"""

from collections.abc import Iterable
from typing import Any

from trainmover.controller.change.incidents import lately
from trainmover.controller.change.seats import at_hand, in_new_run, other_torch, with_machine
from trainmover.controller.compare.roles import representatives
from trainmover.controller.effects import Decision, Effect, Send
from trainmover.controller.standby.attest import fit_kinds, kind_due, known_ms, note_of, stale
from trainmover.controller.standby.places import Places
from trainmover.controller.start import start_workers
from trainmover.controller.state import Job, Kind, Machine, MachineState, Phase
from trainmover.controller.values import kept_for, replace
from trainmover.ids import MachineId, Rank, Slot
from trainmover.protocol.messages import Hold, Recorded, StepsChanged, WarmUp

SANDBOX_CRASHES_MAX = 3
ATTEST_AGAIN_US = 600_000_000
"""A proof that old is made again: a machine changes though its job does not."""
REST = 10
"""For so many times its run a standby rests between two that only might be needed."""
TRY_AGAIN_US, TRY_AGAIN_US_MAX = 60_000_000, 3_600_000_000
"""From when a machine turned out cold to the first time it is tried again, and at most."""
_WITHOUT_WORK = (MachineState.DOWN, MachineState.IDLE, MachineState.WARM)
_BUSY = (MachineState.STARTING, MachineState.WARMING, MachineState.HOLDING)


def tend_standbys(job: Job) -> Decision:
    """While no change is under way: start crashed workers again, warm up, hold."""
    may_warm = job.all_recorded and not job.finished and job.spec.readiness != "idle"
    effects: list[Effect] = []
    for machine in _to_do(job):
        if machine.state is MachineState.DOWN:
            job, orders = _start_again(job, machine)
        elif may_warm:
            job, orders = _make_ready(job, machine)
        else:
            orders = ()
        effects += orders
    return job, tuple(effects)


@kept_for("machines", "seats", "cordoned")
def _to_do(job: Job) -> tuple[Machine, ...]:
    """List the standbys that are not as ready as can be: none, at nearly every event."""
    return tuple(filter(_is_to_do, at_hand(job)))


def _is_to_do(machine: Machine) -> bool:
    """Whether it has no work, and is not as ready as can be."""
    if machine.state is MachineState.WARM and machine.held is not None:
        return any(proof.stale for proof in machine.attests.values())
    return machine.state in _WITHOUT_WORK


def _start_again(job: Job, machine: Machine) -> Decision:
    if machine.crashes >= SANDBOX_CRASHES_MAX:
        note = f"its workers crashed {machine.crashes} times in the sandbox"
        return with_machine(job, machine.id, state=MachineState.COLD, note=note), ()
    return start_workers(job, machine.id)


def _make_ready(job: Job, machine: Machine) -> Decision:
    """The next thing that a standby without work is to do."""
    if versions := other_torch(job, machine):
        return with_machine(job, machine.id, state=MachineState.COLD, note=versions), ()
    if not fit_kinds(job, machine):
        note = note_of(job, machine)
        return with_machine(job, machine.id, state=MachineState.COLD, note=note), ()
    first = kind_due(job, machine)
    if first is None or machine.once:
        return _hold(job, machine)
    job = in_new_run(
        job, machine.id, state=MachineState.WARMING, work=first, held=None, said=frozenset()
    )
    records, known = Places(job).of(first), known_ms(machine)
    order = WarmUp(slot=first, records=records, run=job.runs, known_ms=known)
    return job, (Send(machine.id, order),)


def _hold(job: Job, machine: Machine) -> Decision:
    """Have it run the script as the slot most likely needed, and stay there."""
    if job.spec.readiness != "held":
        state = machine.state if machine.once else MachineState.WARM
        return with_machine(job, machine.id, state=state), ()
    if machine.held is not None:
        if not machine.once or machine.proven(representatives(job)[machine.held]):
            return job, ()
        return start_workers(job, machine.id)  # To prove it again takes a fresh process.
    slot = slot_to_hold(job, machine) if machine.doubt is None else machine.doubt
    return _hold_as(job, machine, slot)


def _hold_as(job: Job, machine: Machine, slot: Slot) -> Decision:
    """Whatever run it holds ends with that."""
    job = in_new_run(
        job, machine.id, state=MachineState.HOLDING, work=slot, held=None, said=frozenset()
    )
    records, known = Places(job).of(slot), known_ms(machine)
    order = Hold(slot=slot, records=records, run=job.runs, known_ms=known)
    return job, (Send(machine.id, order),)


def hold_for(job: Job, slot: Slot, since_us: int | None) -> Decision:
    """Have the run of this slot held, which will soon be needed, by a standby that holds another's.

    since_us  microseconds since that was last done for a slot, None if it never was: in between a
              standby is to hold what it holds, for ten times as long as its run takes
    """
    ready = at_hand(job)
    resting = job.change is None and job.phase is Phase.RUNNING
    if not resting or slot in _held_by(ready):
        return job, ()
    for machine in reversed(ready):
        rested = since_us is None or since_us >= REST * 1000 * known_ms(machine)
        if rested and _may_hold_another(job, machine, slot):
            return _hold_as(job, machine, slot)
    return job, ()


def _may_hold_another(job: Job, machine: Machine, slot: Slot) -> bool:
    """Whether it holds a run, could hold this one, and needs no fresh process for it."""
    if machine.state is not MachineState.WARM or machine.held is None or machine.once:
        return False
    return machine.proven(representatives(job)[slot])


def _held_by(machines: Iterable[Machine]) -> set[Slot | None]:
    """Slots whose runs they hold, or are about to."""
    return {
        slot
        for one in machines
        for slot in (one.held, one.work if one.state is MachineState.HOLDING else None)
    }


def slot_to_hold(job: Job, machine: Machine) -> Slot:
    """A slot no other standby holds, if there is one; on a machine that failed before, if any."""
    others = _held_by(other for other in at_hand(job) if other.id != machine.id)
    fit = fit_kinds(job, machine)
    able = [slot for slot, first in representatives(job).items() if first in fit]
    free = [slot for slot in able if slot not in others] or able
    return min(free, key=lambda slot: (-_troubles(job, job.seats[slot]), slot))


def _troubles(job: Job, machine: MachineId) -> int:
    """How often a machine, or the workers on it, were lost so far."""
    return sum(i.machine == machine for i in lately(job) if i.kind is Kind.RECOVERY)


def recorded(job: Job, fact: Recorded) -> Job:
    """A rank's first steps are recorded. If that is news standbys prove again what they can."""
    before = job.recorded.get(fact.rank)
    job = replace(job, recorded=job.recorded.having(fact.rank, fact))
    return job if before is None or before.trace == fact.trace else _prove_again(job)


def steps_changed(job: Job, fact: StepsChanged) -> Job:
    """A rank has come to make other steps, for example of a newly compiled graph. What others say
    of the same is no news."""
    now = (fact.trace, fact.compiled)
    if now in job.changed:
        return job
    return _prove_again(replace(job, changed=job.changed | {now}))


def _prove_again(job: Job) -> Job:
    """What standbys have proven is void, and a run that is held is of no use: it is of the old
    program.

    The warm-up that follows ends that run. While a change is under way none does, and a joiner must
    not take the run for a new one: then fresh processes make an end of it.
    """
    for machine in job.machines.values():
        outdated = machine.state is MachineState.WARMING
        job = with_machine(job, machine.id, attests=stale(machine), outdated=outdated)
        if machine.state is not MachineState.HOLDING and machine.held is None:
            continue
        given_up: dict[str, Any] = {"held": None, "said": frozenset(), "state": MachineState.IDLE}
        if job.change is not None or machine.once:
            given_up |= {"state": MachineState.DOWN, "workers": {}}
        job = with_machine(job, machine.id, **given_up)
    return job


def attest_again(job: Job, at_us: int) -> Job:
    """From time to time each standby proves once more what it can, one machine at a time."""
    if job.change is not None or any(machine.state in _BUSY for machine in at_hand(job)):
        return job
    ages = {
        machine.id: min(attest.at_us for attest in machine.attests.values())
        for machine in at_hand(job)
        if machine.state is MachineState.WARM and machine.attests
    }
    oldest = min(ages, key=lambda name: (ages[name], job.machines[name].place), default=None)
    if oldest is None or at_us - ages[oldest] < ATTEST_AGAIN_US:
        return job
    return with_machine(job, oldest, attests=stale(job.machines[oldest]))


def try_cold_again(job: Job, at_us: int) -> Decision:
    """Whatever was the matter in the sandbox may have passed: a cold machine gets fresh processes.
    Each time that was in vain doubles the wait."""
    effects: tuple[Effect, ...] = ()
    if job.change is not None or job.phase is not Phase.RUNNING:
        return job, ()
    for machine in at_hand(job):
        if machine.state is MachineState.WARM and machine.tries:
            job = with_machine(job, machine.id, tries=0)
        if machine.state is not MachineState.COLD or machine.suspect or other_torch(job, machine):
            continue
        if machine.cold_us is None:
            job = with_machine(job, machine.id, cold_us=at_us)
        elif at_us - machine.cold_us >= min(TRY_AGAIN_US << machine.tries, TRY_AGAIN_US_MAX):
            job = with_machine(job, machine.id, tries=machine.tries + 1)
            job, orders = start_anew(job, machine.id)
            effects += orders
    return job, effects


def start_anew(job: Job, name: MachineId) -> Decision:
    """Fresh processes. What it has failed is forgotten; one more crash and it is cold again."""
    crashes = min(job.machines[name].crashes, SANDBOX_CRASHES_MAX - 1)
    return start_workers(with_machine(job, name, cold_us=None, attests={}, crashes=crashes), name)


def rank_is_of(job: Job, rank: Rank, slot: Slot | None) -> bool:
    """Whether a fact about `rank` is about the work on `slot`."""
    return rank // job.spec.nproc == slot
