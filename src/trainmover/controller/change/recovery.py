"""Rung 1: survivors stay, a joiner takes the lost ranks, the interrupted step is run again. Pure.

    drain      new epoch to everybody; each rank says where it stood, each agent which records it
               holds; meanwhile the joiner runs the script in the sandbox as the lost ranks, or is
               waited for, if there is none and the job may wait
    boundary   the verdict is out; survivors apply or unwind and wait between two steps
    switch     the joiner takes state and record, all groups exchange the lost member

Where nobody holds what the joiner needs all go back instead (`going_back`): rungs 2 and 3.

Whatever fails meanwhile is the next event: epoch + 1 and the same code from the top. What a joiner
has already done is kept.
"""

from trainmover.controller.change.failing import fails_for_ever, note_failed
from trainmover.controller.change.going_back import go_back, newest, switch_back
from trainmover.controller.change.incidents import (
    amend,
    incident,
    mark,
    open_incident,
    with_incident,
)
from trainmover.controller.change.options import options
from trainmover.controller.change.past import next_number
from trainmover.controller.change.seats import holders, joiners_there_are, with_machine
from trainmover.controller.change.switching import (
    bind_ready,
    go_when_switched,
    joining,
    parked,
    send_switch,
    survivors,
    too_few,
)
from trainmover.controller.change.verdict import Impossible, judge
from trainmover.controller.compare.replicas import replicas
from trainmover.controller.compare.roles import representatives
from trainmover.controller.effects import Answer, Effect, Send
from trainmover.controller.keep.last_checkpoint import nobody_left
from trainmover.controller.start import Decision, end, restart
from trainmover.controller.state import Change, Incident, Job, Kind, MachineState, Outcome, Stage
from trainmover.controller.values import replace
from trainmover.ids import Epoch, MachineId, Rank, Slot, Step
from trainmover.protocol.messages import Interrupt, Leave, Verdict

RETRIES_MAX = 8
"""Attempts in a row without a single commit: then it is the script or the hardware of all."""


def interrupt(
    job: Job,
    cause: str,
    *,
    machine: MachineId | None,
    at_us: int,
    heard_us: int,
    lost: tuple[MachineId, ...] = (),
) -> Decision:
    """Begin a recovery after a loss (or a broken link, when no slot is vacant).

    A move that this overtakes before its first commit is answered; its joiner is taken over.
    lost: machines that are gone, `machine` among them
    """
    job, answer = _answer_overtaken(job, cause)
    job, effects = _open_epoch(
        job, cause, machine=machine, lost=lost, at_us=at_us, heard_us=heard_us
    )
    return job, answer + effects


def go_on_otherwise(job: Job, at_us: int) -> Decision:
    """What the recovery under way, or the move, was to take is not what it ought to be: the same
    incident goes on in a new epoch, and looks for another way."""
    assert job.change is not None
    known = incident(job, job.change.incident)
    heard_us = known.marks.get("heard", at_us)
    if known.kind is Kind.MOVE:
        cause = f"{known.machine} could not be moved: its replicas have parted"
        return interrupt(job, cause, machine=None, at_us=at_us, heard_us=at_us)
    return _open_epoch(
        job, known.cause, machine=known.machine, at_us=at_us, heard_us=heard_us, goes_on=True
    )


def _answer_overtaken(job: Job, cause: str) -> Decision:
    current = open_incident(job)
    if current is None or not current.request:
        return job, ()
    text = f"The move was overtaken: {cause}.\nThe job recovers and trains on."
    answer = Answer(current.request, ok=False, text=text, incident=current.number)
    return amend(job, current.number, request=""), (answer,)


def _open_epoch(
    job: Job,
    cause: str,
    *,
    machine: MachineId | None,
    at_us: int,
    heard_us: int,
    lost: tuple[MachineId, ...] = (),
    goes_on: bool = False,
) -> Decision:
    """goes_on: it is no other incident than the one under way."""
    if not job.all_recorded:
        return restart(job, cause, machine=machine, at_us=at_us, heard_us=heard_us)
    failed = job.change is None or machine is None or goes_on
    job = replace(job, retries=job.retries + (failed and not lost))
    if max(job.retries, _crashes(job, machine)) > RETRIES_MAX:
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
        return nobody_left(job, cause, len(job.vacant()), at_us)
    waits = job.change is not None and job.change.missing
    until_us = job.change.until_us if waits and job.change else at_us + job.spec.wait_s * 1_000_000
    epoch = Epoch(job.epoch_last + 1)
    current = open_incident(job)
    if goes_on and current is not None:
        job, number = amend(job, current.number, epoch=epoch, certificates=()), current.number
    else:
        who = (machine, lost)
        job, number = _note_incident(job, cause, joiners, missing, who, epoch, at_us, heard_us)
    change = Change(
        kind=Kind.RECOVERY,
        epoch=epoch,
        stage=Stage.DRAIN,
        incident=number,
        joiners=joiners,
        leavers={slot: job.seats[slot] for slot in (*joiners, *missing)},
        missing=missing,
        until_us=until_us,
        on_way=job.change.on_way.intersection(kept.values()) if job.change else frozenset(),
    )
    job = replace(job, epoch_last=epoch, change=change)
    orders = tuple(Send(name, Interrupt(epoch=epoch)) for name in sorted(job.machines))
    job, bound = bind_ready(job)
    return job, released + orders + bound


def _crashes(job: Job, machine: MachineId | None) -> int:
    """How often its processes have ended in a row: a change in which that goes on is no progress,
    while each of many machines may lose its processes once at the same moment."""
    known = None if machine is None else job.machines.get(machine)
    return 0 if known is None else known.crashes


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
    who: tuple[MachineId | None, tuple[MachineId, ...]],
    epoch: Epoch,
    at_us: int,
    heard_us: int,
) -> tuple[Job, int]:
    """Open an incident; one that was open is closed as overtaken. who: its `machine` and `lost`.

    A broken link is often the first sign of a lost machine: then the loss explains the incident
    that the link has opened, and is no other.
    """
    current = open_incident(job)
    machine, lost = who
    marks = {"heard": heard_us, "detect": at_us}
    ranks = tuple(rank for slot in sorted({*joiners, *missing}) for rank in job.spec.ranks(slot))
    joiner = next(iter(joiners.values()), None)
    unexplained = current is not None and current.machine is None and current.rung == 1
    if current is not None and current.kind is Kind.RECOVERY and unexplained:
        marks["heard"] = min(heard_us, current.marks["heard"])
        marks["detect"] = current.marks["detect"]
        explained = {
            "machine": machine,
            "lost": lost,
            "joiner": joiner,
            "ranks": ranks,
            "cause": cause,
            "options": options(job, joiners, missing),
        }
        return amend(job, current.number, epoch=epoch, marks=marks, **explained), current.number
    if current is not None:
        overtaken = current.kind is Kind.MOVE and job.change is not None
        outcome = Outcome.CANCELLED if overtaken else Outcome.FAILED
        job = amend(job, current.number, outcome=outcome, note=f"overtaken: {cause}", request="")
    number = next_number(job)
    new = Incident(
        number=number,
        kind=Kind.RECOVERY,
        machine=machine,
        lost=lost,
        joiner=joiner,
        ranks=ranks,
        cause=cause,
        rung=1,
        why_rung="state and records live on other machines",
        options=options(job, joiners, missing),
        epoch=epoch,
        marks=marks,
    )
    return with_incident(job, new), number


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
    if too_few(job, change, len(change.positions)) or len(change.vaults) < len(job.machines):
        return job, ()
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
    positions = {rank: change.positions[rank] for rank in stay}
    records = {rank: sorted(steps) for rank, steps in held.items()}
    job = amend(job, change.incident, positions=positions, held=records)
    verdict = judge(positions, lost, held, job.committed) if stay else _NOBODY_STAYS
    job = note_failed(job, newest(job) if isinstance(verdict, Impossible) else verdict)
    if why := fails_for_ever(job):
        return end(job, 1, why)
    if isinstance(verdict, Impossible):
        return go_back(job, verdict.why, at_us)
    if nobody := _without_replica(job, lost, stay):
        return go_back(job, nobody, at_us)
    job = mark(job, change.incident, "drain", at_us)
    job = amend(job, change.incident, step=verdict)
    change = replace(change, stage=Stage.BOUNDARY, committed=verdict, since_us=at_us)
    job = replace(job, change=change, committed=verdict)
    order = Verdict(epoch=change.epoch, committed=verdict)
    orders = tuple(
        Send(machine, order)
        for slot, machine in enumerate(job.seats)
        if slot not in change.joiners and machine in job.machines
    )
    return job, orders


_NOBODY_STAYS = Impossible("no rank is left that could give its state")


def _without_replica(job: Job, lost: list[Rank], stay: list[Rank]) -> str:
    """Why some lost rank has no source of state; "" if all have one."""
    alone = [rank for rank in lost if not replicas(job, rank, stay)]
    if not alone:
        return ""
    if alone[0] in job.comparison.apart:
        return (
            f"ranks that held the state of rank {alone[0]} after step "
            f"{job.comparison.apart[alone[0]]} have parted since"
        )
    return f"no other rank holds the state of rank {alone[0]}"


def _switch_when_ready(job: Job, at_us: int) -> Decision:
    change = job.change
    assert change is not None
    if too_few(job, change, len(change.at_boundary)):
        return job, ()
    stay = survivors(job, change)
    if (
        set(stay) <= set(change.at_boundary)
        and "verdict" not in incident(job, change.incident).marks
    ):
        job = mark(job, change.incident, "verdict", at_us)
    if not set(stay) <= set(change.at_boundary) or not parked(job, change):
        return job, ()
    job = mark(job, change.incident, "bind", at_us)
    if change.back:
        return switch_back(job, at_us)
    if change.misled:
        return go_back(replace(job, misled=True), _misled(change), at_us, afresh=True)
    if why := _without_replica(job, joining(job, change), stay) or _record_lost(job, change):
        return go_back(job, why, at_us)
    return send_switch(job, {rank: replicas(job, rank, stay) for rank in joining(job, change)})


def _misled(change: Change) -> str:
    return f"what rank {min(change.misled)} has done between two steps cannot be done again"


def _record_lost(job: Job, change: Change) -> str:
    """Why the records that the verdict counted on are gone; "" if they are there."""
    assert change.committed is not None
    resume = Step(change.committed + 1)
    vaults = {machine.id: machine.vault for machine in job.machines.values()}
    for rank in joining(job, change):
        if not holders(change, rank, resume, vaults):
            return f"the record of rank {rank} for step {resume} is on no machine that lives"
    return ""
