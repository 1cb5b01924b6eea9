"""Machines come and go, and so do the processes on them. Pure."""

from dataclasses import replace

from trainmover.controller.effects import Answer, Fence, Send
from trainmover.controller.events import KillRequested, MachineJoined, MachineLost
from trainmover.controller.move import before_switch, cancel_move, unknown_machine
from trainmover.controller.recovery import interrupt
from trainmover.controller.seats import other_torch, with_machine, without_machine
from trainmover.controller.standbys import sandbox_failed
from trainmover.controller.start import Decision, end, lost_early, start_workers
from trainmover.controller.state import Job, Machine, MachineState, Phase
from trainmover.ids import MachineId
from trainmover.protocol.messages import Die, WorkerExited, WorkerUp


def machine_joined(job: Job, event: MachineJoined) -> Decision:
    """Its workers come up; what they are for is decided then."""
    machine = Machine(id=event.machine, standby=event.standby, vault=event.vault, host=event.host)
    job = replace(job, machines={**job.machines, event.machine: machine})
    if job.change is not None:  # It was not asked what records it holds, and it holds none.
        vaults = {**job.change.vaults, event.machine: {}}
        job = replace(job, change=replace(job.change, vaults=vaults))
    return start_workers(job, event.machine)


def machine_lost(job: Job, event: MachineLost) -> Decision:
    """Its agent is shut out, and whoever takes its ranks is looked for."""
    if event.machine not in job.machines:
        return job, ()
    killed_us = job.machines[event.machine].killed_us
    job = without_machine(job, event.machine)
    cause = f"{event.machine} was lost: {event.why}"
    if job.phase is Phase.GATHERING:
        job, effects = lost_early(job, event.machine, event.why)
    else:
        heard_us = killed_us if killed_us is not None else event.heard_us
        job, effects = _lost(job, event.machine, cause, event.at_us, heard_us)
    return job, (Fence(event.machine), *effects)


def _lost(job: Job, machine: MachineId, cause: str, at_us: int, heard_us: int) -> Decision:
    """A machine, or the workers on it, cannot go on in the place they had."""
    slot = job.slot_of(machine)
    needed = slot is not None and (slot in job.vacant() or job.phase is Phase.STARTING)
    joins = job.change is not None and machine in job.change.joiners.values()
    if joins and not needed and before_switch(job.change):
        return cancel_move(job, f"the joiner failed ({cause})")
    if needed or joins:
        return interrupt(job, cause, machine=machine, at_us=at_us, heard_us=heard_us)
    return job, ()


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
    if fact.pid in job.machines[machine].gone:
        return job, ()
    if rank is not None and rank in job.finished:
        return replace(job, exited=job.exited | {rank}), ()
    if job.machines[machine].state is MachineState.DOWN:
        return job, ()
    cause = f"worker {fact.local_rank} of {machine} ended ({_manner(fact.code)})"
    if job.phase is Phase.GATHERING or (job.phase is Phase.STARTING and rank is not None):
        text = f"{cause} before the script began.\nThe job has ended.\nIts output above says why."
        return end(job, 1, text)
    crashes = job.machines[machine].crashes + 1
    job = with_machine(
        job,
        machine,
        state=MachineState.DOWN,
        workers={},
        said=frozenset(),
        held=None,
        crashes=crashes,
    )
    return _lost(job, machine, cause, at_us, at_us)


def _manner(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit status {code}"
