"""Rung 1: survivors stay, a joiner takes the lost ranks, the interrupted step is run again. Pure.

    drain      new epoch to everybody; each rank says where it stood, each agent which records it
               holds; meanwhile the joiner runs the script in the sandbox as the lost ranks, or is
               waited for, if there is none and the job may wait
    boundary   the verdict is out; survivors apply or unwind and wait between two steps
    switch     the joiner takes state and record, all groups exchange the lost member

Whatever fails meanwhile is the next event: epoch + 1 and the same code from the top. What a joiner
has already done is kept.
"""

from dataclasses import replace

from trainmover.controller.change import (
    bind_ready,
    go_when_switched,
    joining,
    parked,
    send_switch,
    survivors,
)
from trainmover.controller.effects import Answer, Effect, Send
from trainmover.controller.incidents import amend, incident, mark, open_incident
from trainmover.controller.roles import representatives
from trainmover.controller.seats import holders, joiners_there_are, replica, with_machine
from trainmover.controller.start import Decision, end, no_standby, restart
from trainmover.controller.state import Change, Incident, Job, Kind, MachineState, Outcome, Stage
from trainmover.controller.verdict import Impossible, judge
from trainmover.ids import Epoch, MachineId, Rank, Slot, Step
from trainmover.protocol.messages import Interrupt, Leave, Verdict

RETRIES_MAX = 8
"""Recoveries in a row without a single commit: then it is the script or the hardware of all."""


def interrupt(
    job: Job, cause: str, *, machine: MachineId | None, at_us: int, heard_us: int
) -> Decision:
    """Begin a recovery after a loss (or a broken link, when no slot is vacant).

    A move that this overtakes before its first commit is answered; its joiner is taken over.
    """
    job, answer = _answer_overtaken(job, cause)
    job, effects = _open_epoch(job, cause, machine=machine, at_us=at_us, heard_us=heard_us)
    return job, answer + effects


def _answer_overtaken(job: Job, cause: str) -> Decision:
    current = open_incident(job)
    if current is None or not current.request:
        return job, ()
    text = f"The move was overtaken: {cause}.\nThe job recovers and trains on."
    answer = Answer(current.request, ok=False, text=text, incident=current.number)
    return amend(job, current.number, request=""), (answer,)


def _open_epoch(
    job: Job, cause: str, *, machine: MachineId | None, at_us: int, heard_us: int
) -> Decision:
    if not job.all_recorded:
        return restart(job, cause, machine=machine, at_us=at_us, heard_us=heard_us)
    job = replace(job, retries=job.retries + 1)
    if job.retries > RETRIES_MAX:
        return end(
            job,
            1,
            f"{cause}; that was recovery {RETRIES_MAX} in a row without a committed step.\n"
            "The job has ended: it would go on like this for ever.\n"
            f"Look at what step {job.committed + 1} does, and at the workers' logs.",
        )
    kept = _joiners_kept(job)
    job, released = _release(job, kept)
    joiners = {**kept, **joiners_there_are(job, set(job.vacant()) - set(kept), kept.values())}
    missing = frozenset(job.vacant()) - set(joiners)
    if missing and not job.spec.wait_s:
        return end(job, 1, no_standby(job, cause, len(job.vacant())))
    waits = job.change is not None and job.change.missing
    until_us = job.change.until_us if waits and job.change else at_us + job.spec.wait_s * 1_000_000
    epoch = Epoch(job.epoch_last + 1)
    job, number = _note_incident(job, cause, joiners, missing, machine, epoch, at_us, heard_us)
    change = Change(
        kind=Kind.RECOVERY,
        epoch=epoch,
        stage=Stage.DRAIN,
        incident=number,
        joiners=joiners,
        leavers={slot: job.seats[slot] for slot in (*joiners, *missing)},
        missing=missing,
        until_us=until_us,
    )
    job = replace(job, epoch_last=epoch, change=change)
    orders = tuple(Send(name, Interrupt(epoch=epoch)) for name in sorted(job.machines))
    job, bound = bind_ready(job)
    return job, released + orders + bound


def _joiners_kept(job: Job) -> dict[Slot, MachineId]:
    """Joiners of the change so far whose slot is still vacant and who still live."""
    before = job.change.joiners if job.change else {}
    vacant = job.vacant()
    usable = {
        MachineState.BOUND,
        MachineState.LEAVING,
        MachineState.WARM,
        MachineState.HOLDING,
        MachineState.WARMING,
        MachineState.IDLE,
    }
    first_of = representatives(job)
    return {
        slot: machine
        for slot, machine in before.items()
        if slot in vacant
        and machine in job.machines
        and job.machines[machine].state in usable
        and not job.machines[machine].why_unfit(first_of.get(slot))
    }


def _release(job: Job, kept: dict[Slot, MachineId]) -> Decision:
    """Joiners of the change so far whose slot is not vacant go back to the pool.

    Once they have left they can be bound to another slot, in this very change.
    """
    effects: list[Effect] = []
    for slot, machine in (job.change.joiners if job.change else {}).items():
        if slot in kept or machine not in job.machines:
            continue
        if job.machines[machine].state is MachineState.BOUND:
            effects.append(Send(machine, Leave(epoch=job.epoch_last)))
            job = with_machine(job, machine, state=MachineState.LEAVING, said=frozenset())
    return job, tuple(effects)


def _note_incident(
    job: Job,
    cause: str,
    joiners: dict[Slot, MachineId],
    missing: frozenset[Slot],
    machine: MachineId | None,
    epoch: Epoch,
    at_us: int,
    heard_us: int,
) -> tuple[Job, int]:
    """Open an incident; one that was open is closed as overtaken.

    A broken link is often the first sign of a lost machine: then the loss explains the incident
    that the link has opened, and is no other.
    """
    current = open_incident(job)
    marks = {"heard": heard_us, "detect": at_us}
    ranks = tuple(rank for slot in sorted({*joiners, *missing}) for rank in job.spec.ranks(slot))
    joiner = next(iter(joiners.values()), None)
    if current is not None and current.kind is Kind.RECOVERY and current.machine is None:
        marks["heard"] = min(heard_us, current.marks["heard"])
        marks["detect"] = current.marks["detect"]
        explained = {"machine": machine, "joiner": joiner, "ranks": ranks, "cause": cause}
        return amend(job, current.number, epoch=epoch, marks=marks, **explained), current.number
    if current is not None:
        overtaken = current.kind is Kind.MOVE and job.change is not None
        outcome = Outcome.CANCELLED if overtaken else Outcome.FAILED
        job = amend(job, current.number, outcome=outcome, note=f"overtaken: {cause}", request="")
    number = len(job.incidents) + 1
    new = Incident(
        number=number,
        kind=Kind.RECOVERY,
        machine=machine,
        joiner=joiner,
        ranks=ranks,
        cause=cause,
        rung=1,
        why_rung="state and records live on other machines",
        epoch=epoch,
        marks=marks,
    )
    return replace(job, incidents=(*job.incidents, new)), number


def advance_recovery(job: Job, at_us: int) -> Decision:
    """Go on to the next stage if everything it needs has been said."""
    assert job.change is not None
    match job.change.stage:
        case Stage.DRAIN if job.change.missing:
            return _take_whom_there_is(job), ()
        case Stage.DRAIN:
            return _give_verdict(job, at_us)
        case Stage.BOUNDARY:
            return _switch_when_ready(job, at_us)
        case _:
            return go_when_switched(job, at_us)


def _take_whom_there_is(job: Job) -> Job:
    """No standby was left, and the job waits: a machine that has joined by now takes a slot."""
    change = job.change
    assert change is not None
    more = joiners_there_are(job, change.missing, change.joiners.values())
    if not more:
        return job
    joiners = {**change.joiners, **more}
    change = replace(change, joiners=joiners, missing=change.missing - set(more))
    job = amend(job, change.incident, joiner=next(iter(joiners.values())))
    return replace(job, change=change)


def _give_verdict(job: Job, at_us: int) -> Decision:
    change = job.change
    assert change is not None
    stay = survivors(job, change)
    if not set(stay) <= set(change.positions) or not set(job.machines) <= set(change.vaults):
        return job, ()
    lost = joining(job, change)
    held = {
        rank: {
            step
            for name, vault in change.vaults.items()
            if name in job.machines
            for step in vault.get(rank, [])
        }
        for rank in lost
    }
    verdict = judge({rank: change.positions[rank] for rank in stay}, lost, held, job.committed)
    if isinstance(verdict, Impossible):
        return end(job, 1, _impossible(job, verdict))
    job = mark(job, change.incident, "drain", at_us)
    job = amend(job, change.incident, step=verdict)
    change = replace(change, stage=Stage.BOUNDARY, committed=verdict)
    job = replace(job, change=change, committed=verdict)
    order = Verdict(epoch=change.epoch, committed=verdict)
    orders = tuple(
        Send(machine, order)
        for slot, machine in enumerate(job.seats)
        if slot not in change.joiners and machine in job.machines
    )
    return job, orders


def _impossible(job: Job, verdict: Impossible) -> str:
    assert job.change is not None
    cause = incident(job, job.change.incident).cause
    return (
        f"{cause}, and {verdict.why}.\n"
        f"The job has ended after step {job.committed}: it could only go on with other numbers.\n"
        "Start it again from your newest checkpoint."
    )


def _switch_when_ready(job: Job, at_us: int) -> Decision:
    change = job.change
    assert change is not None
    stay = survivors(job, change)
    if (
        set(stay) <= set(change.at_boundary)
        and "verdict" not in incident(job, change.incident).marks
    ):
        job = mark(job, change.incident, "verdict", at_us)
    if not set(stay) <= set(change.at_boundary) or not parked(job, change):
        return job, ()
    sources: dict[Rank, Rank] = {}
    for rank in joining(job, change):
        source = replica(job, rank, stay)
        if source is None:
            return end(job, 1, _no_replica(job, rank))
        sources[rank] = source
    if lost := _record_lost(job, change):
        return end(job, 1, _impossible(job, lost))
    job = mark(job, change.incident, "bind", at_us)
    return send_switch(job, sources)


def _record_lost(job: Job, change: Change) -> Impossible | None:
    """The verdict counted on records that a machine lost since then has taken with it."""
    assert change.committed is not None
    resume = Step(change.committed + 1)
    vaults = {machine.id: machine.vault for machine in job.machines.values()}
    for rank in joining(job, change):
        if not holders(change, rank, resume, vaults):
            return Impossible(
                f"the record of rank {rank} for step {resume} is on no machine that lives"
            )
    return None


def _no_replica(job: Job, rank: Rank) -> str:
    assert job.change is not None
    return (
        f"{incident(job, job.change.incident).cause}; "
        f"no other rank holds the state of rank {rank}.\n"
        f"The job has ended after step {job.committed}.\n"
        "Sharded state without a replica needs checkpoints of your own for now."
    )
