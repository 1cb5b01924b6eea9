# SPDX-License-Identifier: Apache-2.0
"""A second standby is bound where the first may be stuck; the first to park takes the ranks. Pure.

A joiner can be out of contact, its script can hang, its host can be slow. All wait for it then,
while other standbys idle. So a recovery binds one more standby as soon as the joiner is away or
takes much longer than its runs took before. Whichever parks later goes back to the pool. A cordoned
machine is never the second, not even for the slot that it had before it was lost.
"""

from trainmover.controller.change.incidents import amend, incident
from trainmover.controller.change.seats import is_parked, with_machine
from trainmover.controller.compare.roles import representatives
from trainmover.controller.effects import Decision, Effect, Send
from trainmover.controller.standby.joiners import joiners_there_are
from trainmover.controller.state import Change, Job, Kind, MachineState, Stage
from trainmover.controller.values import replace
from trainmover.ids import MachineId, Slot
from trainmover.protocol.messages import Leave

LEAST_US = 1_000_000
"""For so long a joiner in contact may take in any case."""
TIMES = 3
"""So many times as long as its longest run so far."""
READY = (MachineState.WARM, MachineState.HOLDING, MachineState.IDLE, MachineState.WARMING)


def hedge(job: Job, at_us: int) -> Job:
    """Choose a second standby for each slot whose joiner may be stuck."""
    change = job.change
    if change is None or not _waits_for_joiners(change):
        return job
    single = [slot for slot in change.joiners if slot not in change.hedges]
    late = [slot for slot in single if _is_late(job, slot, at_us)]
    if not late:
        return job
    taken = {*change.joiners.values(), *change.hedges.values(), *job.away, *job.cordoned}
    found = joiners_there_are(job, late, taken)
    more = {slot: name for slot, name in found.items() if job.machines[name].state in READY}
    if not more:
        return job
    return replace(job, change=replace(change, hedges={**change.hedges, **more}))


def hedge_due(job: Job, at_us: int) -> bool:
    """Whether time alone makes a second standby due: the host is to look."""
    return hedge(job, at_us) is not job


def take_first_parked(job: Job) -> Decision:
    """Give each slot that two machines are bound to to the one that has parked."""
    effects: tuple[Effect, ...] = ()
    for slot, second in dict(job.change.hedges if job.change is not None else {}).items():
        change = job.change
        assert change is not None
        first = change.joiners[slot]
        if not (_has_parked(job, first) or _has_parked(job, second)):
            continue
        taken, spare = (first, second) if _has_parked(job, first) else (second, first)
        hedges = {at: name for at, name in change.hedges.items() if at != slot}
        joiners = {**change.joiners, slot: taken}
        job = replace(job, change=replace(change, joiners=joiners, hedges=hedges))
        if incident(job, change.incident).joiner == spare:
            job = amend(job, change.incident, joiner=taken)
        job, released = release(job, spare)
        effects += released
    return job, effects


def without_hedges(job: Job) -> Decision:
    """Let the second standbys go: the change looks for its joiners anew, or goes back."""
    change = job.change
    effects: tuple[Effect, ...] = ()
    if change is None or not change.hedges:
        return job, ()
    job = replace(job, change=replace(change, hedges={}))
    for name in change.hedges.values():
        job, released = release(job, name)
        effects += released
    return job, effects


def release(job: Job, name: MachineId) -> Decision:
    """Send a machine that was bound back to the pool; it can be bound again once it has left."""
    machine = job.machines.get(name)
    if machine is None or machine.state is not MachineState.BOUND:
        return job, ()
    job = with_machine(job, name, state=MachineState.LEAVING, said=frozenset())
    return job, (Send(name, Leave(epoch=job.epoch_last)),)


def _waits_for_joiners(change: Change) -> bool:
    return change.kind is Kind.RECOVERY and change.stage is not Stage.SWITCH and not change.back


def _has_parked(job: Job, name: MachineId) -> bool:
    return is_parked(job, name) and job.machines[name].state is MachineState.BOUND


def _is_late(job: Job, slot: Slot, at_us: int) -> bool:
    change = job.change
    assert change is not None
    machine = job.machines.get(change.joiners[slot])
    if machine is None or machine.id == job.seats[slot] or _has_parked(job, machine.id):
        return False
    if machine.id in job.away:
        return True
    attest = machine.attests.get(representatives(job).get(slot, slot))
    run_ms = 0 if attest is None else attest.run_ms or attest.warm_ms
    return at_us - change.begun_us >= max(LEAST_US, TIMES * 1000 * run_ms)
