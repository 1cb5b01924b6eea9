"""No standby is left, and the job is to end with all it still has: a last checkpoint. Pure.

    loss -> WriteCheckpoint to the survivors     each writes its own snapshot of the newest cut, and
                                                 some those of the lost ranks, out of vaults
         -> Wrote of all ranks -> Publish -> end

Where the job stands it cannot be written: a checkpoint is a state of all ranks, and what a lost one
held is not anywhere. So it is the newest cut, and the steps behind it come again with `--resume`.
Nobody trains meanwhile; ranks stay where they were when the machine was lost. One more loss only
means that others write.
"""

from trainmover.controller.change.seats import address_of, with_machine, without_machines
from trainmover.controller.effects import Answer, Effect, Fence, GiveUpCheckpoint, Publish, Send
from trainmover.controller.events import (
    EVENTS,
    REQUESTS,
    AgentSaid,
    CheckpointFailed,
    CheckpointPublished,
    MachineJoined,
    MachinesLost,
    StopRequested,
    Tick,
    WorkerSaid,
)
from trainmover.controller.keep.checkpoints import complete, published
from trainmover.controller.keep.cuts import cut_at_hand, without_vaults
from trainmover.controller.standby.places import Places
from trainmover.controller.start import Decision, end, no_standby
from trainmover.controller.state import (
    Cut,
    Job,
    Machine,
    MachineState,
    Phase,
    Stopping,
    Writing,
)
from trainmover.controller.values import replace
from trainmover.ids import Epoch, MachineId, Rank, Slot
from trainmover.protocol.messages import Foreign, WorkerExited, WriteCheckpoint, Wrote

SAVE_US = 600_000_000
"""A disk that takes longer is not waited for."""
_HAS_PROCESSES = (MachineState.ACTIVE, MachineState.LEAVING, MachineState.BOUND)


def nobody_left(job: Job, cause: str, needed: int, at_us: int, *, waited_s: int = 0) -> Decision:
    """What the job was told to do where a slot cannot be filled: end, or save first."""
    text = no_standby(job, cause, needed, waited_s=waited_s)
    if job.spec.no_standby != "checkpoint" or job.stopping is not None:
        return end(job, 1, text)
    why = text.split("\n")[0]
    cut = job.cut
    stopping = Stopping(1, why, at_us + SAVE_US, job.checkpointed)
    job = replace(job, stopping=stopping, change=None)
    if cut is not None and job.checkpoint is not None and job.checkpoint.step >= cut.step:
        return _end(job, "")
    return _begin(job)


def take(job: Job, event: EVENTS) -> Decision:
    """An event while it is being written."""
    assert job.stopping is not None
    until_us = job.stopping.until_us
    if isinstance(event, REQUESTS):
        text = "The job is about to end: nothing was done."
        return job, (Answer(event.request, ok=False, text=text),)
    match event:
        case MachinesLost(lost=lost):
            gone = [one.machine for one in lost if one.machine in job.machines]
            job = without_vaults(job, {job.machines[machine].vault for machine in gone})
            job = without_machines(job, gone)
            job, effects = _begin(job) if gone else (job, ())
            return job, (*map(Fence, gone), *effects)
        case MachineJoined():
            new = Machine(event.machine, event.standby, event.vault, event.host)
            return replace(job, machines=job.machines.having(event.machine, new)), ()
        case AgentSaid(machine=machine, fact=WorkerExited() as fact) if machine in job.machines:
            return _process_ended(job, machine, fact)
        case WorkerSaid(machine=machine, fact=Wrote() as fact) if machine in job.seats:
            return _wrote(job, fact)
        case CheckpointPublished():
            return _end(published(job, event), "")
        case CheckpointFailed():
            return _end(job, event.why)
        case StopRequested():
            return _end(job, event.why)
        case Tick(at_us=at_us) if at_us >= until_us:
            return _end(job, f"it took longer than {SAVE_US // 1_000_000} s")
        case _:
            return job, ()


def _begin(job: Job) -> Decision:
    """Under a number of its own: what was begun before is not added to."""
    effects: tuple[Effect, ...] = ()
    if job.writing is not None:
        effects = (GiveUpCheckpoint(job.writing.step, job.writing.epoch),)
        job = replace(job, writing=None)
    cut = cut_at_hand(job)
    writers = _writers(job)
    if cut is None or not writers:
        job, ended = _end(job, _why_not(job, cut))
        return job, effects + ended
    epoch = Epoch(job.epoch_last + 1)
    foreign = _foreign(job, cut, writers)
    order = WriteCheckpoint(epoch=epoch, step=cut.step, folder=job.spec.checkpoint, foreign=foreign)
    job = replace(job, phase=Phase.SAVING, epoch_last=epoch, writing=Writing(cut.step, epoch))
    machines = {job.seats[rank // job.spec.nproc] for rank in writers}
    return job, effects + tuple(Send(machine, order) for machine in sorted(machines))


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


def _wrote(job: Job, fact: Wrote) -> Decision:
    writing = job.writing
    if writing is None or (fact.step, fact.epoch) != (writing.step, writing.epoch):
        return job, ()
    if fact.refused:
        job = replace(job, writing=None)
        job, ended = _end(job, f"rank {fact.rank}: {fact.refused}")
        return job, (GiveUpCheckpoint(writing.step, writing.epoch), *ended)
    writing = replace(writing, wrote={**writing.wrote, fact.rank: fact})
    job = replace(job, writing=writing)
    whole = len(writing.wrote) == job.spec.world_size
    return job, ((Publish(complete(job, writing)),) if whole else ())


def _process_ended(job: Job, machine: MachineId, fact: WorkerExited) -> Decision:
    current = job.machines[machine]
    if machine not in job.seats or fact.pid in current.gone:
        return job, ()
    job = with_machine(job, machine, state=MachineState.DOWN, workers={})
    return _begin(job)


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
    return end(job, 1, f"{job.stopping.why}.\n{means}\n{do}, once there are machines.")
