# SPDX-License-Identifier: Apache-2.0
"""Reports of ranks on the change under way, and of the first commit after it. Pure."""

from trainmover.controller.change.from_disk import without_unusable
from trainmover.controller.change.incidents import amend, first_commit, incident, mark
from trainmover.controller.change.interruption import go_on_otherwise, interrupt
from trainmover.controller.change.losses import give_up
from trainmover.controller.change.move import cancel_move
from trainmover.controller.change.price import can_be_given_up
from trainmover.controller.change.seats import drains, goes_back
from trainmover.controller.compare.replicas import not_believed
from trainmover.controller.effects import Decision, Send
from trainmover.controller.keep.cuts import cut_at_hand
from trainmover.controller.standby.standbys import sandbox_failed
from trainmover.controller.state import Cause, Change, Job, Kind, Phase, Stage, Trigger
from trainmover.controller.values import replace
from trainmover.ids import MachineId, Rank, Slot
from trainmover.protocol.messages import (
    AtBoundary,
    Committed,
    Interrupted,
    Leave,
    Loaded,
    Position,
    Prepared,
    Switched,
    Unproven,
    VaultHeld,
)


def committed(job: Job, fact: Committed, at_us: int) -> Job:
    """Only the first commit of an epoch comes here. It closes an incident, and answers a move.

    One from before the job went back comes too late: it would undo that.
    """
    if goes_back(job.change):
        return job
    if job.start_ms is None and job.begun_us is not None:
        job = replace(job, start_ms=(at_us - job.begun_us) / 1000)
    step = max(job.committed, *(row.step for row in fact.rows)) if fact.rows else job.committed
    return first_commit(replace(job, committed=step, retries=0), fact, at_us)


def interrupted(job: Job, fact: Interrupted, at_us: int) -> Decision:
    """A link broke. A lost machine behind it will show; all ranks must leave the epoch now."""
    change = job.change
    switching = change is not None and change.stage is Stage.SWITCH
    current = change.epoch if change is not None and switching else job.epoch
    if fact.epoch != current or drains(change) or job.phase is not Phase.RUNNING:
        return job, ()
    if fact.rank >= job.spec.world_size:
        return job, ()
    job = without_unusable(job, fact)
    machine = _machine_of(job, fact.rank)
    if fact.storeless and machine in job.machines and can_be_given_up(job, machine):
        # It has tried for long: in no epoch could it meet the others.
        cause = Cause(Trigger.LINK, f"{machine} does not reach the job's store")
        return give_up(job, machine, cause, at_us, at_us)
    cause = Cause(Trigger.LINK, f"rank {fact.rank} lost a link ({fact.reason})")
    if fact.unusable:
        text = f"rank {fact.rank} cannot go back to step {fact.unusable} ({fact.reason})"
        cause = Cause(Trigger.DAMAGED, text)
    return interrupt(job, cause, machine=None, at_us=at_us, heard_us=at_us)


def _machine_of(job: Job, rank: Rank) -> MachineId:
    """Return the machine that has the rank, or is to take it."""
    slot = Slot(rank // job.spec.nproc)
    joiners = job.change.joiners if job.change is not None else {}
    return joiners.get(slot, job.seats[slot])


def unproven(job: Job, machine: MachineId, fact: Unproven, at_us: int) -> Decision:
    """A joiner has not begun: the recovery goes another way, or on with those who are believed."""
    change = job.change
    if change is None or fact.epoch != change.epoch or not _speaks_for(job, change, machine, fact):
        return job, ()
    if change.stage is not Stage.SWITCH:
        return job, ()
    if fact.lacks:
        return _lacking(job, machine, fact.lacks, at_us)
    job = not_believed(job, fact)
    return go_on_otherwise(job, at_us)


def _lacking(job: Job, machine: MachineId, lacks: str, at_us: int) -> Decision:
    """What the joiner lacks a snapshot of all ranks has: all go back to that, the joiner too. Where
    there is none, or that was tried, another machine is looked for."""
    change = job.change
    assert change is not None
    if change.kind is Kind.RECOVERY and not change.back and cut_at_hand(job) is not None:
        job, effects = go_on_otherwise(job, at_us)
        if job.change is not None:
            job = replace(job, change=replace(job.change, lacking=lacks))
        return job, effects
    leave = Send(machine, Leave(epoch=change.epoch))
    job, effects = sandbox_failed(job, machine, lacks, at_us)
    return job, (leave, *effects)


def about_change(
    job: Job,
    machine: MachineId,
    fact: Prepared | Position | AtBoundary | Loaded | Switched,
    at_us: int,
) -> Decision:
    """Take a fact about the change under way; one about another epoch is late: ignore it."""
    change = job.change
    if change is None or fact.epoch != change.epoch or not _speaks_for(job, change, machine, fact):
        return job, ()
    rank = fact.rank
    match fact:
        case Prepared(reason=reason) if reason:
            return cancel_move(job, f"phase 1 failed on rank {rank} ({reason})", failed=True)
        case Prepared():
            change = replace(change, prepared=change.prepared.having(rank))
        case Position():
            change = replace(change, positions=change.positions.having(rank, fact))
        case AtBoundary(committed=step, misled=misled):
            change = replace(
                change,
                at_boundary=change.at_boundary.having(rank, step),
                misled=change.misled.having(rank) if misled else change.misled,
            )
        case Switched():
            change = replace(change, switched=change.switched.having(rank))
        case Loaded(certificate=certificate):
            if not certificate.equal:
                return _lacking(job, machine, _wrong_state(rank), at_us)
            change = replace(change, loaded=change.loaded.having(rank))
            certificates = (*incident(job, change.incident).certificates, certificate)
            job = amend(job, change.incident, certificates=certificates)
            if len(change.loaded) == len(change.joiners) * job.spec.nproc:
                job = mark(job, change.incident, "state", at_us)
    return replace(job, change=change), ()


def _wrong_state(rank: Rank) -> str:
    return f"rank {rank} did not receive the state that its source sent: the digests differ"


def vault_held(job: Job, machine: MachineId, fact: VaultHeld) -> Job:
    """An agent has said which records its vault holds."""
    change = job.change
    if change is None or change.epoch != fact.epoch:
        return job
    vaults = change.vaults.having(machine, fact.records)
    return replace(job, change=replace(change, vaults=vaults))


def _speaks_for(
    job: Job,
    change: Change,
    machine: MachineId,
    fact: Prepared | Position | AtBoundary | Loaded | Switched | Unproven,
) -> bool:
    """Tell whether `machine` is the one whose word counts for this rank at this point."""
    slot = fact.rank // job.spec.nproc
    if slot >= len(job.seats):
        return False
    if isinstance(fact, Position | AtBoundary):
        return job.seats[slot] == machine
    return change.joiners.get(Slot(slot), job.seats[slot]) == machine
