"""Machines without ranks: warm up, park as joiners, unwind as leavers, or turn out unfit. Pure.

Each worker of a machine says for itself how far it is; the machine's state turns with the last.
"""

from trainmover.controller.incidents import incident
from trainmover.controller.move import before_switch, cancel_move
from trainmover.controller.recovery import interrupt
from trainmover.controller.seats import with_machine
from trainmover.controller.start import Decision
from trainmover.controller.state import Job, MachineState
from trainmover.ids import MachineId, Rank

_OTHER_TRACE = "as rank {rank} its shadow step made other collectives than the recorded one"


def warmed(job: Job, machine: MachineId, local_rank: int, rank: Rank, trace: str) -> Decision:
    """A warm-up is through; of use only if its steady step is the job's."""
    if _differs(job, rank, trace):
        return sandbox_failed(job, machine, _OTHER_TRACE.format(rank=rank))
    return _said(job, machine, local_rank, MachineState.WARMING, MachineState.WARM), ()


def joiner_parked(
    job: Job, machine: MachineId, local_rank: int, rank: Rank, trace: str
) -> Decision:
    """A joiner may go on only if one step of its shadow run has the job's steady trace."""
    current = job.machines[machine]
    if current.state is not MachineState.BOUND:
        return job, ()
    if _differs(job, rank, trace):
        return sandbox_failed(job, machine, _OTHER_TRACE.format(rank=rank))
    return with_machine(job, machine, said=current.said | {local_rank}), ()


def left(job: Job, machine: MachineId, local_rank: int) -> Job:
    """A leaver has unwound its script and may warm up."""
    return _said(job, machine, local_rank, MachineState.LEAVING, MachineState.IDLE)


def sandbox_failed(job: Job, machine: MachineId, reason: str) -> Decision:
    """The machine is no standby for this script; whatever counted on it looks for another."""
    joins = job.change is not None and machine in job.change.joiners.values()
    job = with_machine(job, machine, state=MachineState.COLD, said=frozenset(), note=reason)
    if not joins:
        return job, ()
    cause = f"{machine} cannot take the ranks: {reason}"
    if before_switch(job.change):
        return cancel_move(job, cause)
    assert job.change is not None
    current = incident(job, job.change.incident)
    at_us = max(current.marks.values())
    heard_us = current.marks.get("heard", at_us)
    return interrupt(job, cause, machine=current.machine, at_us=at_us, heard_us=heard_us)


def _said(
    job: Job, machine: MachineId, local_rank: int, now: MachineState, then: MachineState
) -> Job:
    """Count a worker's fact; when all have said it, the machine's state turns."""
    current = job.machines[machine]
    if current.state is not now:
        return job
    said = current.said | {local_rank}
    if len(said) < job.spec.nproc:
        return with_machine(job, machine, said=said)
    return with_machine(job, machine, said=frozenset(), state=then)


def _differs(job: Job, rank: Rank, trace: str) -> bool:
    return rank in job.recorded and job.recorded[rank].trace != trace
