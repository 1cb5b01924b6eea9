# SPDX-License-Identifier: Apache-2.0
"""A checkpoint is a cut on disk. Pure.

    cut complete -> WriteCheckpoint to all      each rank writes its snapshot, beside its steps
                 -> Wrote from all              with what a resumed job needs of the first steps
                 -> Publish                     the host makes a checkpoint of it, in one moment
                 -> CheckpointPublished

A change of members breaks the writing off. What an old epoch still writes then goes to a folder
that nobody publishes.
"""

from trainmover.controller.change.seats import address_of, before_switch
from trainmover.controller.effects import Decision, Effect, GiveUpCheckpoint, Publish, Send
from trainmover.controller.events import CheckpointFailed, CheckpointPublished
from trainmover.controller.listed import some_of
from trainmover.controller.state import Cut, Job, Writing
from trainmover.controller.values import replace
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.checkpoint import published_name
from trainmover.protocol.messages import Checkpoint, WriteCheckpoint, Written, Wrote

NAMED_MAX = 6
LEAST_US, TIMES = 600_000_000, 10
"""So long, or so many times as long as the last checkpoint took, a rank may write its part."""


def tend_checkpoints(job: Job, at_us: int) -> Decision:
    """Have the newest cut written if a checkpoint is due; break off what a change has overtaken, or
    what ranks do not come to an end with."""
    if job.change is not None:
        return (job, ()) if before_switch(job.change) else _break_off(job)
    if job.writing is not None and writer_due(job, at_us):
        late = replace(job, checkpointed=job.writing.step)
        return _give_up(cannot_be(late, late_text(job, at_us)), job.writing)
    cut = job.cut
    if cut is None or job.writing is not None or not _is_due(job, cut) or not _at_hand(job, cut):
        return job, ()
    order = WriteCheckpoint(epoch=job.epoch, step=cut.step, folder=job.spec.checkpoint)
    job = replace(job, writing=Writing(cut.step, job.epoch, at_us))
    return job, tuple(Send(machine, order) for machine in job.seats)


def writer_due(job: Job, at_us: int) -> bool:
    """Whether a rank has been writing its part for too long: its disk hangs."""
    writing = job.writing
    if writing is None or _iscomplete(job, writing) or job.saves_last:
        return False
    return at_us - writing.since_us >= writer_limit_us(job)


def writer_limit_us(job: Job) -> int:
    """Return for how long the parts of a checkpoint are waited for, in microseconds."""
    return max(LEAST_US, round(1000 * TIMES * (job.write_ms or 0.0)))


def late_text(job: Job, at_us: int) -> str:
    """Name the ranks whose part of the checkpoint has not come, and where they are."""
    writing = job.writing
    assert writing is not None
    late = unwritten_ranks(job, writing)
    named = some_of([f"{r} on {job.seats[r // job.spec.nproc]}" for r in late], NAMED_MAX)
    waited_s = (at_us - writing.since_us) / 1e6
    return f"rank {named} has not written its part in {waited_s:.0f} s: its disk hangs"


def unwritten_ranks(job: Job, writing: Writing) -> list[Rank]:
    """Return the ranks whose part of the checkpoint has not come, lowest first."""
    return [rank for rank in map(Rank, range(job.spec.world_size)) if rank not in writing.wrote]


def _is_due(job: Job, cut: Cut) -> bool:
    every = job.spec.checkpoint_every
    due = cut.step // every > job.checkpointed // every
    if job.stopping is not None:
        due = cut.step > max(job.stopping.after, job.checkpointed)
    return bool(job.spec.checkpoint) and due and job.all_recorded and not job.finished


def _at_hand(job: Job, cut: Cut) -> bool:
    """Whether every rank still has its snapshot in memory. If not, the next cut will do."""
    alive = all(machine in job.machines for machine in job.seats)
    return alive and all(
        address_of(job, job.seats, rank) == worker for rank, worker in cut.workers.items()
    )


def wrote(job: Job, fact: Wrote, at_us: int) -> Decision:
    """A rank's part is on disk. What an older epoch has written counts for nothing."""
    writing = job.writing
    if writing is None or not _is_of(writing, fact.step, fact.epoch):
        return job, ()
    if fact.refused:
        job = cannot_be(
            replace(job, checkpointed=writing.step), f"rank {fact.rank}: {fact.refused}"
        )
        return _give_up(job, writing)
    writing = replace(writing, wrote={**writing.wrote, fact.rank: fact})
    job = replace(job, writing=writing)
    if _iscomplete(job, writing):
        job = replace(job, write_ms=(at_us - writing.since_us) / 1000)
    return job, ((Publish(_complete(job, writing)),) if _iscomplete(job, writing) else ())


def published(job: Job, event: CheckpointPublished) -> Job:
    """It is there, whatever has happened to the members since."""
    checkpoint = event.checkpoint
    job = _written(job, checkpoint.step, checkpoint.epoch)
    return replace(job, checkpoint=checkpoint, unusable=job.unusable - {checkpoint.step})


def not_published(job: Job, event: CheckpointFailed) -> Job:
    """The one before stays the newest; the next is tried when it is due."""
    if _is_of(job.writing, event.step, event.epoch):
        job = cannot_be(job, event.why)
    return _written(job, event.step, event.epoch)


def cannot_be(job: Job, why: str) -> Job:
    """The checkpoint that a job ends with, if this was to be it."""
    if job.stopping is None:
        return job
    return replace(job, stopping=replace(job.stopping, why_not=why))


def _written(job: Job, step: Step, epoch: Epoch) -> Job:
    if _is_of(job.writing, step, epoch):
        job = replace(job, writing=None)
    return replace(job, checkpointed=max(job.checkpointed, step))


def _is_of(writing: Writing | None, step: Step, epoch: Epoch) -> bool:
    return writing is not None and (writing.step, writing.epoch) == (step, epoch)


def _break_off(job: Job) -> Decision:
    writing = job.writing
    if writing is None or _iscomplete(job, writing):
        return job, ()
    return _give_up(job, writing)


def write_anew(job: Job) -> Decision:
    """What was begun is not added to."""
    return (job, ()) if job.writing is None else _give_up(job, job.writing)


def _give_up(job: Job, writing: Writing) -> tuple[Job, tuple[Effect, ...]]:
    return replace(job, writing=None), (GiveUpCheckpoint(writing.step, writing.epoch),)


def _iscomplete(job: Job, writing: Writing) -> bool:
    return len(writing.wrote) == job.spec.world_size


def _complete(job: Job, writing: Writing) -> Checkpoint:
    """What is to be published once all ranks have written."""
    spec, parts = job.spec, sorted(writing.wrote.items())
    machine = next(job.machines[name] for name in job.seats if name in job.machines)
    return Checkpoint(
        folder=spec.checkpoint,
        run_id=spec.run_id,
        step=writing.step,
        epoch=writing.epoch,
        argv=spec.argv,
        module=spec.module,
        script=spec.script,
        machines=spec.machines,
        nproc=spec.nproc,
        torch=machine.torch,
        trainmover=machine.version,
        python=spec.python,
        states={rank: _in_folder(writing.step, said.state) for rank, said in parts},
        records={rank: said.record for rank, said in parts if said.record},
        compiled={rank: said.compiled for rank, said in parts if said.compiled},
        recorded=[job.recorded[rank] for rank in sorted(job.recorded)],
        seed=spec.seed,
    )


def _in_folder(step: Step, files: list[Written]) -> list[Written]:
    """Where they will be once they are published."""
    folder = published_name(step)
    return [Written(f"{folder}/{file.file}", file.bytes, file.digest) for file in files]
