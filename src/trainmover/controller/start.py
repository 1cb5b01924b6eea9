# SPDX-License-Identifier: Apache-2.0
"""From machines to a running job, and starting again from nothing. Pure."""

from collections.abc import Iterable

from trainmover.controller.change.buddies import further_keepers, keepers, vaults_of, with_keepers
from trainmover.controller.change.incidents import (
    amend,
    in_new_epoch,
    next_number,
    open_incident,
    with_incident,
)
from trainmover.controller.change.seats import other_torch, with_machine
from trainmover.controller.compare.known import Comparison
from trainmover.controller.effects import Decision, Effect, Send, end
from trainmover.controller.facts import Facts, Ranks
from trainmover.controller.standby.attest import note_of
from trainmover.controller.standby.joiners import joiners_after_loss, joiners_there_are, no_standby
from trainmover.controller.standstill.condemned import without_processes
from trainmover.controller.standstill.stuck import Hanging
from trainmover.controller.state import (
    Cause,
    Change,
    Incident,
    Job,
    Kind,
    Machine,
    MachineState,
    Outcome,
    Phase,
    Stage,
    Trigger,
)
from trainmover.controller.values import replace
from trainmover.ids import Epoch, MachineId, Rank, Slot, Step
from trainmover.protocol.messages import Checkpoint, RunRank, StartWorkers


def gather(job: Job, at_us: int) -> Decision:
    """Once enough machines have their workers up, seat them and run, or go on from a checkpoint."""
    if job.machines.count(MachineState.IDLE) < job.spec.machines:
        return job, ()  # The usual case, while a thousand machines come.
    if job.phase is Phase.GATHERING:
        seats = _first_seats(job)
        if seats is None:
            return _too_few_alike(job)
        job = replace(job, seats=seats)
    if any(job.machines[machine].state is not MachineState.IDLE for machine in job.seats):
        return job, ()
    job = replace(job, torch=job.torch or job.machines[job.seats[0]].torch)
    if others := [name for name in job.seats if other_torch(job, job.machines[name])]:
        return _without(job, others)
    if job.spec.resume is not None:
        return _resume(job, job.spec.resume, at_us)
    epoch = Epoch(job.epoch_last + 1)
    keeper = keepers(job, job.seats)
    one_more = further_keepers(job, job.seats)
    kept_by, further = vaults_of(job, keeper), vaults_of(job, one_more)
    orders = tuple(
        Send(
            machine,
            RunRank(
                epoch=epoch,
                slot=Slot(slot),
                buddies=_of_slot(job, Slot(slot), kept_by),
                further=_of_slot(job, Slot(slot), further),
            ),
        )
        for slot, machine in enumerate(job.seats)
    )
    job = with_keepers(job, keeper, one_more)
    for machine in job.seats:
        job = with_machine(job, machine, state=MachineState.ACTIVE)
    return replace(job, phase=Phase.RUNNING, epoch=epoch, epoch_last=epoch), orders


def _without(job: Job, others: list[MachineId]) -> Decision:
    """These have another torch than the ranks, which is known only now that their processes are up:
    machines that have not, or whose processes have yet to come up, take their place."""
    slots = [Slot(job.seats.index(name)) for name in others]
    joiners = joiners_there_are(job, slots, taken=job.seats)
    if len(joiners) < len(slots):
        why = "; ".join(f"{name}: {other_torch(job, job.machines[name])}" for name in others)
        return end(job, 1, no_standby(job, why, len(slots)))
    seats = tuple(joiners.get(Slot(slot), name) for slot, name in enumerate(job.seats))
    current = open_incident(job)
    if current is not None and current.joiner in others:
        job = amend(job, current.number, joiner=next(iter(joiners.values())))
    return _start_all(replace(job, seats=seats, phase=Phase.STARTING), joiners.values())


def _of_slot(job: Job, slot: Slot, kept_by: dict[Rank, str]) -> dict[Rank, str]:
    return {rank: kept_by[rank] for rank in job.spec.ranks(slot) if rank in kept_by}


def _resume(job: Job, found: Checkpoint, at_us: int) -> Decision:
    """Nobody runs as a rank at first: all join, as those do who go back to the checkpoint."""
    torch = job.torch
    if torch != found.torch:
        return end(
            job,
            1,
            f"The checkpoint was written with torch {found.torch}; {torch} is installed.\n"
            "Nothing was begun: the numbers could differ.\n"
            f"Install torch {found.torch}, or start the job from the beginning in another folder.",
        )
    epoch = Epoch(max(job.epoch_last, found.epoch) + 1)
    number = next_number(job)
    resumed = Incident(
        number=number,
        kind=Kind.RECOVERY,
        machine=None,
        joiner=None,
        ranks=(),
        cause=f"the job goes on after step {found.step} of run {found.run_id}",
        trigger=Trigger.RESUMED,
        rung=3,
        why_rung="it was started with --resume",
        epoch=epoch,
        step=found.step,
        marks={"heard": at_us, "detect": at_us},
    )
    change = Change(
        kind=Kind.RECOVERY,
        epoch=epoch,
        stage=Stage.BOUNDARY,
        incident=number,
        joiners={Slot(slot): machine for slot, machine in enumerate(job.seats)},
        leavers={},
        back=True,
        disk=True,
        checkpoint=found,
        committed=found.step,
    )
    job = with_incident(job, resumed)
    return replace(
        job,
        phase=Phase.RUNNING,
        epoch_last=epoch,
        change=change,
        committed=found.step,
        checkpoint=found,
        checkpointed=found.step,
        recorded=Facts({said.rank: said for said in found.recorded}),
        attached=Ranks(said.rank for said in found.recorded),
    ), ()


def _first_seats(job: Job) -> tuple[MachineId, ...] | None:
    """Machines that hold ranks from the start; standbys only in the place of early losses, or where
    a torn journal has lost who was there: whoever was in the job before comes back as a standby."""
    free = [m for m in job.machines.values() if not _is_spared(job, m) and not _is_other(job, m)]
    by_wish = sorted(free, key=lambda m: (m.standby, m.place))
    chosen = by_wish[: job.spec.machines]
    all_there = len(job.machines) >= job.spec.machines + job.spec.standbys - job.lost_early
    in_place = len(chosen) if job.takeovers and all_there else job.lost_early
    if len(chosen) < job.spec.machines or sum(m.standby for m in chosen) > in_place:
        return None
    if any(machine.state is not MachineState.IDLE for machine in chosen):
        return None
    return tuple(machine.id for machine in sorted(chosen, key=lambda m: m.place))


def _is_spared(job: Job, machine: Machine) -> bool:
    """Who was to begin does, whatever people say of later; not if it is not fit."""
    cordon = job.cordoned.get(machine.id)
    return cordon is not None and (machine.standby or cordon.health)


def _is_other(job: Job, machine: Machine) -> bool:
    """Whether it is a standby that has another torch than those that were to begin: a rank there
    would have other numbers."""
    if not machine.standby or not machine.torch:
        return False
    theirs = next((m.torch for m in job.machines.values() if not m.standby and m.torch), "")
    return machine.torch != (theirs or machine.torch)


def _too_few_alike(job: Job) -> Decision:
    """Nothing to wait for, if standbys of another torch are all that could still take part."""
    if not job.lost_early or job.spec.engine:
        return job, ()  # Those that are to begin come yet, however many standbys have.
    others = [machine for machine in job.machines.values() if _is_other(job, machine)]
    to_come = job.spec.machines + job.spec.standbys - job.lost_early
    left = max(to_come, len(job.machines)) - len(others)
    if left >= job.spec.machines:
        return job, ()
    named = ", ".join(f"{machine.id} (torch {machine.torch})" for machine in others)
    return end(
        job,
        1,
        f"{left} machines are left to begin with; {job.spec.machines} are needed.\n"
        f"No step was made: {named} cannot stand in for a machine with another torch.\n"
        "Install the same torch everywhere, and start the job again.",
    )


def lost_early(job: Job, machine: MachineId, why: str) -> Decision:
    """A machine is lost before the job began; a standby may take part in its place."""
    job = replace(job, lost_early=job.lost_early + 1)
    left = job.spec.machines + job.spec.standbys - job.lost_early
    if left >= job.spec.machines or job.spec.engine:
        return job, ()
    return end(
        job,
        1,
        f"{machine} was lost before the job began: {why}.\n"
        f"{left} machines are left; {job.spec.machines} are needed.\n"
        "Look at that machine's output above, or start with --standbys.",
    )


def start_workers(job: Job, machine: MachineId) -> Decision:
    """Fresh processes on one machine. What it failed it would fail again; what it has proven counts
    on, if every run gets fresh processes anyway."""
    job = without_processes(job, {machine})
    current = job.machines[machine]
    attests = {
        first: attest for first, attest in current.attests.items() if attest.failed or current.once
    }
    job = with_machine(
        job,
        machine,
        state=MachineState.STARTING,
        workers={},
        pids={},
        gone=frozenset(current.pids.values()),
        said=frozenset(),
        work=None,
        held=None,
        attests=attests,
        note=note_of(job, replace(current, attests=attests)),
    )
    return job, (Send(machine, StartWorkers(epoch=job.epoch_last, restarts=job.restarts)),)


def restart(
    job: Job, cause: Cause, *, machine: MachineId | None, at_us: int, heard_us: int
) -> Decision:
    """Rung 3: run everything again from the start, with a standby in the place of what is lost.

    The way out of a loss before the first steps are recorded: nothing is warm yet and hardly
    anything is lost. Deterministic, so the repeated steps have the same bits.
    """
    again = job.phase is Phase.STARTING  # The restart under way has not begun to run: same one.
    job = replace(job, restarts=job.restarts + (not again), change=None)
    if job.restarts > job.spec.restarts_max:
        return end(
            job,
            1,
            f"{cause.text}.\n"
            f"The job has used its {job.spec.restarts_max} restarts (--max-restarts).",
        )
    slots = job.vacant()
    joiners = joiners_after_loss(job, slots, taken=())
    if len(joiners) < len(slots) and not job.spec.engine:
        return end(job, 1, no_standby(job, cause.text, len(slots)))
    ranks = tuple(rank for slot in slots for rank in job.spec.ranks(slot))
    why = (
        "the first steps were not recorded yet" if job.attached else "no training loop was seen yet"
    )
    new = Incident(
        number=next_number(job),
        kind=Kind.RECOVERY,
        machine=machine,
        joiner=next(iter(joiners.values()), None),
        ranks=ranks,
        cause=cause.text,
        trigger=cause.trigger,
        rung=3,
        why_rung=why,
        epoch=Epoch(job.epoch_last + 2),
        marks={"heard": heard_us, "detect": at_us},
    )
    job = with_incident(replace(_anew(job, joiners), incidents=_superseded(job)), new)
    if len(joiners) < len(slots):
        return _gather_again(job)
    return _start_all(job, job.seats)


def _gather_again(job: Job) -> Decision:
    """Wait for the machines that the engine was asked for, as a job does that has yet to begin."""
    job, orders = _start_all(job, job.machines)
    anybody = max(job.lost_early, job.spec.machines)
    job = replace(job, phase=Phase.GATHERING, seats=(), lost_early=anybody, hanging=Hanging())
    return job, orders


def start_again(
    job: Job, joiners: dict[Slot, MachineId], number: int, why: str, *, redone: int
) -> Decision:
    """Rung 3 out of a recovery that leads nowhere: the same, in fresh processes on all machines,
    since what standbys hold was made for the run that is given up.

    joiners: of the slots that change hands; number: of the incident that goes on
    """
    job = replace(job, restarts=job.restarts + 1, change=None)
    if job.restarts > job.spec.restarts_max:
        used = f"The job has used its {job.spec.restarts_max} restarts (--max-restarts)."
        return end(job, 1, f"{why}.\n{used}")
    epoch = Epoch(job.epoch_last + 2)
    job = in_new_epoch(job, number, epoch, rung=3, why_rung=why, step=Step(0), redone=redone)
    return _start_all(_anew(job, joiners), job.machines)


def _anew(job: Job, joiners: dict[Slot, MachineId]) -> Job:
    """Nothing has been trained yet."""
    seats = tuple(joiners.get(Slot(slot), machine) for slot, machine in enumerate(job.seats))
    return replace(
        job,
        seats=seats,
        phase=Phase.STARTING,
        epoch_last=Epoch(job.epoch_last + 1),
        committed=Step(0),
        attached=Ranks(),
        recorded=Facts(),
        keepers={},
        keepers_before={},
        changed=frozenset(),
        finished=Facts(),
        exited=Ranks(),
        snapshot_every=0,
        no_snapshots="",
        cut=None,
        snapped=Facts(),
        comparison=Comparison(),
    )


def _start_all(job: Job, machines: Iterable[MachineId]) -> Decision:
    effects: list[Effect] = []
    for name in machines:
        job, order = start_workers(job, name)
        effects += order
    return job, tuple(effects)


def _superseded(job: Job) -> tuple[Incident, ...]:
    current = open_incident(job)
    if current is None:
        return job.incidents
    note = "another loss came first; see the next incident"
    return (*job.incidents[:-1], replace(current, outcome=Outcome.SUPERSEDED, note=note))
