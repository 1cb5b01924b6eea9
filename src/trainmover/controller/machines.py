"""Machines come and go, and so do the processes on them. Pure."""

from collections.abc import Sequence

import msgspec

from trainmover.controller.change.incidents import amend, open_incident
from trainmover.controller.change.losses import losses_text
from trainmover.controller.change.move import before_switch, cancel_move, unknown_machine
from trainmover.controller.change.recovery import interrupt
from trainmover.controller.change.seats import (
    joiners_there_are,
    other_torch,
    with_machine,
    without_machines,
)
from trainmover.controller.effects import Answer, Effect, Fence, Send
from trainmover.controller.events import (
    ControllerReturned,
    KillRequested,
    Lost,
    MachineJoined,
    MachinesLost,
)
from trainmover.controller.keep.checkpoints import write_anew
from trainmover.controller.keep.cuts import without_vaults
from trainmover.controller.policies.health.examine import examine_joined, keeps_out
from trainmover.controller.policies.maintenance.leaving import joined_again
from trainmover.controller.standby.flapping import losses_noted
from trainmover.controller.standby.standbys import sandbox_failed
from trainmover.controller.standstill.condemned import condemned_of, without_processes
from trainmover.controller.standstill.stuck import Condemned
from trainmover.controller.start import Decision, end, lost_early, start_workers
from trainmover.controller.state import Job, Machine, MachineState, Phase
from trainmover.controller.values import replace
from trainmover.ids import Epoch, MachineId
from trainmover.protocol.messages import Die, StoreAt, WorkerExited, WorkerUp

NUMBERS_PASSED = 1000
"""More epochs than were ordered in the moments that a power cut takes from a journal."""


def machine_joined(job: Job, event: MachineJoined) -> Decision:
    """Its workers come up; what they are for is decided then."""
    machine = Machine(
        id=event.machine,
        standby=event.standby,
        vault=event.vault,
        host=event.host,
        rack=event.rack,
    )
    job = joined_again(job, event.machine)
    begun_us = event.at_us if job.begun_us is None else job.begun_us
    machines = job.machines.having(event.machine, machine)
    job = replace(job, machines=machines, begun_us=begun_us)
    if job.change is not None:  # It was not asked what records it holds, and it holds none.
        vaults = job.change.vaults.having(event.machine, {})
        job = replace(job, change=replace(job.change, vaults=vaults))
    where = (Send(event.machine, StoreAt(address=job.store)),) if job.store else ()
    job, started = start_workers(job, event.machine)
    job, looked = examine_joined(job, event.machine, event.at_us)
    return job, where + started + looked


def machines_lost(job: Job, event: MachinesLost) -> Decision:
    """Their agents are shut out, and whoever takes their ranks is looked for: for all at once."""
    lost = [_as_said(job, one) for one in event.lost if one.machine in job.machines]
    if not lost:
        return job, ()
    names = [one.machine for one in lost]
    if job.phase is Phase.GATHERING:
        return _lost_early(job, names, {one.machine: one.why for one in lost}, event.at_us)
    killed = [killed for name in names if (killed := job.machines[name].killed_us) is not None]
    heard_us = min(killed or [one.heard_us for one in lost])
    job = _all_gone(job, names, event.at_us)
    fences = tuple(map(Fence, names))
    job, effects = _lost(job, names, losses_text(lost), event.at_us, heard_us, died=True)
    return job, fences + effects


def _as_said(job: Job, lost: Lost) -> Lost:
    """That it would be taken away was known."""
    cordon = job.cordoned.get(lost.machine)
    if cordon is None or not cordon.until_us:
        return lost
    return msgspec.structs.replace(lost, why=f"{lost.why}, as its owner had said")


def give_up(job: Job, machine: MachineId, cause: str, at_us: int, heard_us: int) -> Decision:
    """Shut out a machine that answers and cannot be worked with."""
    if job.phase is Phase.GATHERING:
        return _lost_early(job, [machine], {machine: cause}, at_us)
    job = _all_gone(job, [machine], at_us)
    job, effects = _lost(job, [machine], cause, at_us, heard_us)
    return job, (Fence(machine), *effects)


def _lost_early(
    job: Job, machines: Sequence[MachineId], why: dict[MachineId, str], at_us: int
) -> Decision:
    effects: list[Effect] = list(map(Fence, machines))
    counted = [machine for machine in machines if not keeps_out(job, machine)]
    job = _all_gone(job, machines, at_us)
    for machine in counted:
        if job.phase is Phase.GATHERING:  # Too few may be left before the last of them.
            job, more = lost_early(job, machine, why[machine])
            effects += more
    return job, tuple(effects)


def can_be_spared(job: Job, machine: MachineId) -> bool:
    """Whether others could take its ranks, or will be waited for."""
    without = without_machines(job, [machine])
    slots = without.vacant()
    return bool(job.spec.wait_s) or len(joiners_there_are(without, slots, ())) == len(slots)


def _all_gone(job: Job, machines: Sequence[MachineId], at_us: int) -> Job:
    gone = [job.machines[name] for name in machines]
    job = losses_noted(job, gone, at_us)
    job = without_vaults(job, {machine.vault for machine in gone})
    job = without_machines(without_processes(job, set(machines)), machines)
    slots = (slot for name in machines if (slot := job.slot_of(name)) is not None)
    # Ranks that were through with the script. It may return by the same name, and without them.
    done = [rank for slot in slots if not job.is_vacant(slot) for rank in job.spec.ranks(slot)]
    return replace(job, exited=job.exited.union(done)) if done else job


def _lost(
    job: Job,
    machines: Sequence[MachineId],
    cause: str,
    at_us: int,
    heard_us: int,
    *,
    died: bool = False,
) -> Decision:
    """Machines, or the workers on them, cannot go on in the places they had. died: the machines."""
    if job.saves_last:
        return write_anew(job)
    vacant = set(job.vacant())
    slots = {name: job.slot_of(name) for name in machines}
    needed = [name for name, at in slots.items() if at in vacant]
    joiners = set(job.change.joiners.values()) if job.change is not None else set()
    join = [name for name in machines if name in joiners]
    if join and not needed and before_switch(job.change):
        return cancel_move(job, f"the joiner failed ({cause})")
    if not needed and not join:
        return job, ()
    return interrupt(
        job,
        cause,
        machine=(needed or join)[0],
        lost=tuple(machines) if died else (),
        at_us=at_us,
        heard_us=heard_us,
    )


def kill(job: Job, event: KillRequested) -> Decision:
    """A drill: the machine is told to die, everything else happens as in earnest."""
    machine = MachineId(event.machine)
    if machine not in job.machines:
        return job, (Answer(event.request, ok=False, text=unknown_machine(job, machine)),)
    job = with_machine(job, machine, killed_us=event.at_us)
    return job, (
        Send(machine, Die()),
        Answer(event.request, ok=True, text=f"{machine} was told to die."),
    )


def controller_returned(job: Job, event: ControllerReturned) -> Job:
    """Numbers that may have been given out in a part of the journal that is lost are not used."""
    passed = NUMBERS_PASSED if event.cut else 0
    return replace(
        job,
        takeovers=job.takeovers + 1,
        taken_over_us=event.at_us,
        epoch_last=Epoch(job.epoch_last + passed),
        runs=job.runs + passed,
    )


def worker_up(
    job: Job, machine: MachineId, local_rank: int, fact: WorkerUp, at_us: int
) -> Decision:
    """A process is up; with the last of its machine that is idle.

    A joiner that turns out to have another torch than the ranks is none: another is looked for.
    """
    current = job.machines[machine]
    workers = {**current.workers, local_rank: fact.address}
    pids = {**current.pids, local_rank: fact.pid}
    up = len(workers) == job.spec.nproc and current.state is MachineState.STARTING
    state = MachineState.IDLE if up else current.state
    versions = {"torch": fact.torch, "version": fact.version}
    job = with_machine(job, machine, workers=workers, pids=pids, state=state, **versions)
    joins = job.change is not None and machine in job.change.joiners.values()
    if up and joins and (reason := other_torch(job, job.machines[machine])):
        return sandbox_failed(job, machine, reason, at_us)
    return job, ()


def worker_exited(job: Job, machine: MachineId, fact: WorkerExited, at_us: int) -> Decision:
    """A process ended that had not said it would."""
    rank = job.rank_of(machine, fact.local_rank)
    if fact.pid in job.machines[machine].gone or (job.saves_last and rank is None):
        return job, ()
    if rank is not None and rank in job.finished and not job.saves_last:
        return replace(job, exited=job.exited.having(rank)), ()
    if job.machines[machine].state is MachineState.DOWN:
        return job, ()
    cause = f"worker {fact.local_rank} of {machine} ended ({_manner(fact)})"
    if job.phase is Phase.GATHERING or (job.phase is Phase.STARTING and rank is not None):
        text = f"{cause} before the script began.\nThe job has ended.\nIts output above says why."
        return end(job, 1, text)
    if (condemned := condemned_of(job, machine, fact.pid)) is not None:
        return _stuck_ended(job, machine, condemned, at_us)
    return _lost(without_processes(_down(job, machine), {machine}), [machine], cause, at_us, at_us)


def process_given_up(job: Job, machine: MachineId, cause: str, at_us: int) -> Decision:
    """A process lives, and its rank cannot go on in it: as if it had ended."""
    return _lost(without_processes(_down(job, machine), {machine}), [machine], cause, at_us, at_us)


def _stuck_ended(job: Job, machine: MachineId, condemned: Condemned, at_us: int) -> Decision:
    """A rank stood still, and its process was ended for that; the second time its machine goes."""
    cause, since_us = condemned.cause, condemned.since_us
    if condemned.give_up and can_be_spared(job, machine):
        cause = f"{cause}; it is not the first time, and {machine} is given up"
        job, effects = give_up(job, machine, cause, at_us, since_us)
    else:
        job = without_processes(_down(job, machine), {machine})
        job, effects = _lost(job, [machine], cause, at_us, since_us)
    current = open_incident(job)
    if current is not None and current.cause == cause:
        marks = {**current.marks, "detect": condemned.judged_us}
        known = condemned.rank is not None and condemned.stack
        stacks = {condemned.rank: condemned.stack} if known else {}
        job = amend(job, current.number, marks=marks, stacks=stacks)
    return job, effects


def _down(job: Job, machine: MachineId) -> Job:
    """Some process of the machine has ended: nothing that the others do is of use."""
    crashes = job.machines[machine].crashes + 1
    return with_machine(
        job,
        machine,
        state=MachineState.DOWN,
        workers={},
        said=frozenset(),
        held=None,
        crashes=crashes,
    )


def _manner(fact: WorkerExited) -> str:
    how = f"signal {-fact.code}" if fact.code < 0 else f"exit status {fact.code}"
    return f"{how}: {fact.note}" if fact.note else how
