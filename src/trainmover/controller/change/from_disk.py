# SPDX-License-Identifier: Apache-2.0
"""Rung 3: fresh processes on all machines, and the state of the newest checkpoint. Pure.

The way out where no cut is at hand any more. The host looks for the newest checkpoint while the
processes start and run the script. It reads no state: a rank that finds its file damaged says so,
and the one before is taken.
"""

from trainmover.controller.change.incidents import amend, incident
from trainmover.controller.change.switching import begin_back
from trainmover.controller.effects import Decision, Effect, FindCheckpoint, end
from trainmover.controller.events import CheckpointFound
from trainmover.controller.standby.joiners import everybody, no_standby
from trainmover.controller.start import start_workers
from trainmover.controller.state import Change, Cut, Job, MachineState
from trainmover.controller.values import replace
from trainmover.protocol.messages import Checkpoint, Interrupted

_TOLD = (MachineState.ACTIVE, MachineState.BOUND, MachineState.LEAVING)


def go_back_to_disk(job: Job, why: str) -> Decision:
    """All ranks join with what the newest whole checkpoint has of them.

    Whoever runs the script as some rank may have been told another step: such processes are ended.
    """
    change = job.change
    assert change is not None
    job = replace(job, restarts=job.restarts + 1)
    if job.restarts > job.spec.restarts_max + len(job.unusable):  # A damaged file costs none.
        return end(job, 1, _no_more_restarts(job, why))
    joiners = everybody(job, change)
    if joiners is None:
        return end(job, 1, no_standby(job, incident(job, change.incident).cause, 1))
    effects: list[Effect] = []
    for name in joiners.values():
        if job.machines[name].state in _TOLD:
            job, order = start_workers(job, name)
            effects += order
    job = replace(begin_back(job, joiners, disk=True), cut=None)
    job = amend(job, change.incident, rung=3, why_rung=why)
    effects.append(FindCheckpoint(job.epoch_last, job.unusable))
    return job, tuple(effects)


def found(job: Job, event: CheckpointFound) -> Decision:
    """The newest checkpoint that is whole was looked for."""
    change, checkpoint = job.change, event.checkpoint
    if change is None or not change.disk or change.epoch != event.epoch:
        return job, ()
    if checkpoint is None:
        return end(job, 1, _none_whole(job, change, event.damaged))
    failed = incident(job, change.incident).failed
    last = failed[0] - 1 if failed is not None else job.committed
    redone = max(0, last - checkpoint.step)
    job = amend(job, change.incident, step=checkpoint.step, redone=redone)
    change = replace(change, checkpoint=checkpoint, committed=checkpoint.step)
    step = checkpoint.step
    return replace(job, change=change, checkpoint=checkpoint, committed=step, checkpointed=step), ()


def without_unusable(job: Job, fact: Interrupted) -> Job:
    """A rank that goes back has found no copy of its state that is whole: not there again."""
    change = job.change
    if change is None or not change.back or not fact.unusable or fact.unusable != change.committed:
        return job
    if change.disk:
        return replace(job, unusable=job.unusable | {fact.unusable})
    return replace(job, cut=None)


def as_cut(checkpoint: Checkpoint) -> Cut:
    """Snapshots of all ranks, nowhere but in files."""
    return Cut(
        step=checkpoint.step,
        vaults={},
        workers={},
        bytes=checkpoint.bytes,
        cost_us=0,
        files={
            rank: [checkpoint.path(part) for part in parts]
            for rank, parts in checkpoint.states.items()
        },
    )


def _no_more_restarts(job: Job, why: str) -> str:
    assert job.change is not None
    return (
        f"{incident(job, job.change.incident).cause}, and {why}.\n"
        f"The job has used its {job.spec.restarts_max} restarts (--max-restarts).\n"
        f"Look at what was lost each time, then go on: --resume {job.spec.checkpoint}"
    )


def _none_whole(job: Job, change: Change, damaged: list[str]) -> str:
    return "\n".join(
        [
            f"{incident(job, change.incident).cause}, "
            f"and no checkpoint in {job.spec.checkpoint} is whole.",
            f"The job has ended after step {job.committed}.",
            *damaged,
            f"Look at that disk, then go on with --resume {job.spec.checkpoint}, or start the job "
            "again from the beginning.",
        ]
    )
