# SPDX-License-Identifier: Apache-2.0
"""No standby is left, and the job is to end with all it still has: a last checkpoint. Pure.

    loss -> WriteCheckpoint to the survivors     each writes its own snapshot of the newest cut, and
                                                 some those of the lost ranks, out of vaults
         -> Wrote of all ranks -> Publish -> end

Where the job stands it cannot be written: a checkpoint is a state of all ranks, and what a lost one
held is not anywhere. So it is the newest cut, and the steps behind it come again with `--resume`.
Nobody trains meanwhile; ranks stay where they were when the machine was lost. One more loss only
means that others write.
"""

from trainmover.controller.change.seats import address_of
from trainmover.controller.effects import Decision, Send, end
from trainmover.controller.events import (
    EVENTS,
    AgentSaid,
    CheckpointFailed,
    CheckpointPublished,
    ContactChanged,
    ControllerReturned,
    MachineJoined,
    MachinesLost,
    StopRequested,
    Tick,
    WorkerSaid,
)
from trainmover.controller.keep.checkpoints import write_anew
from trainmover.controller.keep.cuts import cut_at_hand
from trainmover.controller.standby.joiners import no_standby
from trainmover.controller.standby.places import Places
from trainmover.controller.standstill.stuck import Hanging
from trainmover.controller.state import Cut, Job, MachineState, Phase, Stopping, Writing
from trainmover.controller.values import replace
from trainmover.ids import Epoch, Rank, Slot
from trainmover.protocol.messages import Foreign, WorkerExited, WriteCheckpoint, Wrote

SAVE_US = 600_000_000
"""A disk that takes longer is not waited for."""
_HEARD = (
    MachineJoined
    | MachinesLost
    | CheckpointPublished
    | CheckpointFailed
    | StopRequested
    | Tick
    | ContactChanged
    | ControllerReturned
)
_HAS_PROCESSES = (MachineState.ACTIVE, MachineState.LEAVING, MachineState.BOUND)


def nobody_left(job: Job, cause: str, needed: int, at_us: int, *, waited_s: int = 0) -> Decision:
    """What the job was told to do where a slot cannot be filled: end, or save first. One that is
    being stopped ends as one does whose machines can be replaced."""
    if job.stopping is not None:
        return end_stopped(job, job.stopping)
    text = no_standby(job, cause, needed, waited_s=waited_s)
    if job.spec.no_standby != "checkpoint":
        return end(job, 1, text)
    why = text.split("\n")[0]
    stopping = Stopping(1, why, at_us + SAVE_US, job.checkpointed, alone=True)
    job = replace(job, phase=Phase.ENDING, stopping=stopping, change=None, hanging=Hanging())
    return write_anew(job)


def end_stopped(job: Job, stopping: Stopping) -> Decision:
    """As it was told to, and with what is left of it."""
    return end(job, stopping.code, f"{stopping.why}.\n{_kept(job, stopping)}")


def _kept(job: Job, stopping: Stopping) -> str:
    found = job.checkpoint
    if found is None:
        return "No checkpoint of it could be written in time.\nThe next run begins anew."
    late = "" if found.step > stopping.after else "No newer checkpoint could be written in time. "
    return f"{late}The checkpoint of step {found.step} is there.\n--resume goes on from it."


def matters(event: EVENTS) -> bool:
    """What is heard meanwhile: who is there, and how far it has come. The rest is of a job that
    trains."""
    match event:
        case WorkerSaid():
            return isinstance(event.fact, Wrote)
        case AgentSaid():
            return isinstance(event.fact, WorkerExited)
        case _:
            return isinstance(event, _HEARD)


def tend_last(job: Job, at_us: int) -> Decision:
    """Have it written, under a number of its own, unless it is under way; and end."""
    assert job.stopping is not None
    cut = job.cut
    if cut is not None and job.checkpoint is not None and job.checkpoint.step >= cut.step:
        return _end(job, "")
    if job.stopping.why_not:
        return _end(job, job.stopping.why_not)
    if at_us >= job.stopping.until_us:
        return _end(job, f"it took longer than {SAVE_US // 1_000_000} s")
    if job.writing is not None:
        return job, ()
    cut, writers = cut_at_hand(job), _writers(job)
    if cut is None or not writers:
        return _end(job, _why_not(job, cut))
    epoch = Epoch(job.epoch_last + 1)
    foreign = _foreign(job, cut, writers)
    order = WriteCheckpoint(epoch=epoch, step=cut.step, folder=job.spec.checkpoint, foreign=foreign)
    job = replace(job, epoch_last=epoch, writing=Writing(cut.step, epoch, at_us))
    machines = {job.seats[rank // job.spec.nproc] for rank in writers}
    return job, tuple(Send(machine, order) for machine in sorted(machines))


def _writers(job: Job) -> list[Rank]:
    """Ranks whose processes are there."""
    return [
        rank
        for slot, name in enumerate(job.seats)
        if name in job.machines and job.machines[name].state in _HAS_PROCESSES
        for rank in job.spec.ranks(Slot(slot))
    ]


def _foreign(job: Job, cut: Cut, writers: list[Rank]) -> list[Foreign]:
    """Snapshots that are in no process of their own rank, dealt out to those that are there."""
    own = {
        rank
        for rank in writers
        if rank in cut.workers and address_of(job, job.seats, rank) == cut.workers[rank]
    }
    others = [Rank(rank) for rank in range(job.spec.world_size) if rank not in own]
    places = Places(job)
    return [
        Foreign(
            writer=writers[index % len(writers)],
            rank=rank,
            vaults=[its[rank] for its in (cut.vaults, cut.further) if rank in its],
            processes=[cut.workers[rank]] if rank in cut.workers else [],
            records=[
                stored
                for stored in places.of(Slot(rank // job.spec.nproc)).get(rank, [])
                if stored.rank == rank
            ],
        )
        for index, rank in enumerate(others)
    ]


def _why_not(job: Job, cut: Cut | None) -> str:
    if cut is not None:
        return "no process of the job is left that could write it"
    if job.cut is None:
        return "there was no snapshot of all ranks yet"
    return f"not every rank's snapshot of step {job.cut.step} is left"


def _end(job: Job, why_not: str) -> Decision:
    """why_not: there is no checkpoint of the newest cut; "" if there is."""
    assert job.stopping is not None
    found = job.checkpoint
    kept = f"The newest is that of step {found.step}." if found is not None else "There is none."
    if why_not:
        means = f"The job has ended without a last checkpoint: {why_not}. {kept}"
    else:
        assert found is not None
        means = f"The job has ended with a checkpoint of step {found.step}."
    do = "--resume goes on from it" if found is not None else "Start it again from the beginning"
    text = f"{job.stopping.why}.\n{means}\n{do}, once there are machines."
    return end(job, job.stopping.code, text)
