# SPDX-License-Identifier: Apache-2.0
"""Machines come and go, and so do the processes on them. Pure."""

import msgspec

from trainmover.controller.change.buddies import without_keeper
from trainmover.controller.change.incidents import amend, open_incident
from trainmover.controller.change.losses import (
    all_gone,
    cannot_go_on,
    give_up,
    losses_text,
    lost_before_begin,
    process_gone,
)
from trainmover.controller.change.move import unknown_machine
from trainmover.controller.change.price import can_be_replaced
from trainmover.controller.change.seats import other_torch, with_machine
from trainmover.controller.effects import Answer, Decision, Effect, Fence, Send, end
from trainmover.controller.events import (
    ControllerReturned,
    KillRequested,
    Lost,
    MachineJoined,
    MachinesLost,
)
from trainmover.controller.policies.health.examine import examine_joined
from trainmover.controller.policies.maintenance.leaving import joined_again
from trainmover.controller.standby.standbys import sandbox_failed
from trainmover.controller.standstill.condemned import condemned_of
from trainmover.controller.standstill.contact import without_contact
from trainmover.controller.standstill.stuck import Condemned
from trainmover.controller.start import start_workers
from trainmover.controller.state import Cause, Job, Kind, Machine, MachineState, Phase, Trigger
from trainmover.controller.values import replace
from trainmover.ids import Epoch, MachineId
from trainmover.protocol.messages import Die, Interrupt, StoreAt, WorkerExited, WorkerUp

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
    job = without_keeper(joined_again(job, event.machine), event.machine)
    begun_us = event.at_us if job.begun_us is None else job.begun_us
    machines = job.machines.having(event.machine, machine)
    job = replace(job, machines=machines, begun_us=begun_us)
    where = (Send(event.machine, StoreAt(address=job.store)),) if job.store else ()
    job, started = start_workers(job, event.machine)
    job, looked = examine_joined(job, event.machine, event.at_us)
    return job, where + _asked(job, event.machine) + started + looked


def _asked(job: Job, machine: MachineId) -> tuple[Effect, ...]:
    """While ranks have left their epoch, as all others were: from then on its vault keeps nothing
    for an older one. Who has been given up, and knew it before, may reach it."""
    change = job.change
    if change is None or change.kind is not Kind.RECOVERY:
        return ()
    return (Send(machine, Interrupt(epoch=change.epoch)),)


def machines_lost(job: Job, event: MachinesLost) -> Decision:
    """Their agents are shut out, and whoever takes their ranks is looked for: for all at once."""
    lost = [_as_said(job, one) for one in event.lost if one.machine in job.machines]
    if not lost:
        return job, ()
    names = [one.machine for one in lost]
    if job.phase is Phase.GATHERING:
        return lost_before_begin(job, names, {one.machine: one.why for one in lost}, event.at_us)
    killed = [killed for name in names if (killed := job.machines[name].killed_us) is not None]
    heard_us = min(killed or [one.heard_us for one in lost])
    job = all_gone(job, names, event.at_us)
    fences = tuple(map(Fence, names))
    cause = Cause(Trigger.LOST, losses_text(lost))
    job, effects = cannot_go_on(job, names, cause, event.at_us, heard_us, lost=lost)
    return job, fences + effects


def _as_said(job: Job, lost: Lost) -> Lost:
    """That it would be taken away was known."""
    if not job.is_announced(lost.machine):
        return lost
    return msgspec.structs.replace(lost, why=f"{lost.why}, as its owner had said")


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
        without_contact(job),
        wall_ahead_us=event.wall_us - event.at_us if event.wall_us else job.wall_ahead_us,
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
        return _without_worker(job, machine, fact.local_rank), ()
    text = f"worker {fact.local_rank} of {machine} ended ({_manner(fact)})"
    if job.phase is Phase.GATHERING or (job.phase is Phase.STARTING and rank is not None):
        text = f"{text} before the script began.\nThe job has ended.\nIts output above says why."
        return end(job, 1, text)
    pids = {**job.machines[machine].pids, fact.local_rank: fact.pid}  # It may have said nothing.
    job = with_machine(job, machine, pids=pids)
    if (condemned := condemned_of(job, machine, fact.pid)) is not None:
        return _stuck_ended(job, machine, condemned, at_us)
    return process_gone(job, machine, Cause(Trigger.ENDED, text), at_us, at_us)


def _without_worker(job: Job, machine: MachineId, local_rank: int) -> Job:
    """It was kept for the snapshot that it had."""
    workers = job.machines[machine].workers
    if local_rank not in workers:
        return job
    left = {local: address for local, address in workers.items() if local != local_rank}
    return with_machine(job, machine, workers=left)


def _stuck_ended(job: Job, machine: MachineId, condemned: Condemned, at_us: int) -> Decision:
    """A rank stood still, and its process was ended for that; the second time its machine goes."""
    text, since_us = condemned.cause, condemned.since_us
    if condemned.give_up and can_be_replaced(job, machine):
        text = f"{text}; it is not the first time, and {machine} is given up"
        job, effects = give_up(job, machine, Cause(Trigger.STUCK, text), at_us, since_us)
    else:
        job, effects = process_gone(job, machine, Cause(Trigger.STUCK, text), at_us, since_us)
    current = open_incident(job)
    if current is not None and current.cause == text:
        marks = {**current.marks, "detect": condemned.judged_us}
        known = condemned.rank is not None and condemned.stack
        stacks = {condemned.rank: condemned.stack} if known else {}
        job = amend(job, current.number, marks=marks, stacks=stacks)
    return job, effects


def _manner(fact: WorkerExited) -> str:
    how = f"signal {-fact.code}" if fact.code < 0 else f"exit status {fact.code}"
    return f"{how}: {fact.note}" if fact.note else how
