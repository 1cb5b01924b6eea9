# SPDX-License-Identifier: Apache-2.0
"""A recovery begins: a new epoch to everybody, joiners for what is vacant, an incident. Pure.

It begins anew, in the next epoch, with whatever fails meanwhile: what a joiner has already done is
kept. `recovery` goes on from here.
"""

from collections.abc import Sequence

from trainmover.controller.change.incidents import (
    amend,
    in_new_epoch,
    incident,
    next_number,
    open_incident,
    with_incident,
)
from trainmover.controller.change.options import options
from trainmover.controller.compare.roles import representatives
from trainmover.controller.effects import Answer, Decision, Effect, Send, end
from trainmover.controller.events import Lost
from trainmover.controller.keep.last_checkpoint import nobody_left
from trainmover.controller.standby.hedging import release, without_hedges
from trainmover.controller.standby.joiners import joiners_after_loss
from trainmover.controller.start import restart
from trainmover.controller.state import (
    Cause,
    Change,
    Incident,
    Job,
    Kind,
    MachineState,
    Outcome,
    Stage,
    Trigger,
)
from trainmover.controller.values import replace
from trainmover.ids import Epoch, MachineId, Slot
from trainmover.protocol.messages import Interrupt

RETRIES_MAX = 8
"""Attempts in a row without a single commit: then it is the script or the hardware of all."""


def interrupt(
    job: Job,
    cause: Cause,
    *,
    machine: MachineId | None,
    at_us: int,
    heard_us: int,
    lost: Sequence[Lost] = (),
) -> Decision:
    """Begin a recovery after a loss (or a broken link, when no slot is vacant).

    A move that this overtakes before its first commit is answered; its joiner is taken over.
    lost: machines that are gone, `machine` among them
    """
    job, answer = _answer_overtaken(job, cause.text)
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
        text = f"{known.machine} could not be moved: its replicas have parted"
        cause = Cause(Trigger.CORRUPTION, text)
        return interrupt(job, cause, machine=None, at_us=at_us, heard_us=at_us)
    assert known.trigger is not None
    cause = Cause(known.trigger, known.cause)
    return _open_epoch(
        job, cause, machine=known.machine, at_us=at_us, heard_us=heard_us, goes_on=True
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
    cause: Cause,
    *,
    machine: MachineId | None,
    at_us: int,
    heard_us: int,
    lost: Sequence[Lost] = (),
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
            f"{cause.text}; that was recovery {RETRIES_MAX} in a row without a committed step.\n"
            "The job has ended: it would go on like this for ever.\n"
            f"Look at what step {job.committed + 1} does, and at the workers' logs.",
        )
    kept = _joiners_kept(job)
    job, hedges = without_hedges(job)
    job, released = _release(job, kept)
    released += hedges
    joiners = {**kept, **joiners_after_loss(job, set(job.vacant()) - set(kept), kept.values())}
    missing = frozenset(job.vacant()) - set(joiners)
    if missing and not job.spec.wait_s:
        return nobody_left(job, cause.text, len(job.vacant()), at_us)
    waits = job.change is not None and job.change.missing
    until_us = job.change.until_us if waits and job.change else at_us + job.spec.wait_s * 1_000_000
    epoch = Epoch(job.epoch_last + 1)
    current = open_incident(job)
    if goes_on and current is not None:
        job, number = in_new_epoch(job, current.number, epoch), current.number
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
        begun_us=at_us,
        on_way=job.change.on_way.intersection(kept.values()) if job.change else frozenset(),
    )
    job = replace(job, epoch_last=epoch, change=change)
    orders = tuple(Send(name, Interrupt(epoch=epoch)) for name in sorted(job.machines))
    return job, released + orders


def _crashes(job: Job, machine: MachineId | None) -> int:
    """Return how often its processes have ended in a row: a change in which that goes on is no
    progress, while each of many machines may lose its processes once at the same moment."""
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
        if slot not in kept:
            job, left = release(job, machine)
            effects += left
    return job, tuple(effects)


def _note_incident(
    job: Job,
    cause: Cause,
    joiners: dict[Slot, MachineId],
    missing: frozenset[Slot],
    who: tuple[MachineId | None, Sequence[Lost]],
    epoch: Epoch,
    at_us: int,
    heard_us: int,
) -> tuple[Job, int]:
    """Open an incident; one that was open is closed as overtaken. who: its `machine` and `lost`.

    A broken link, or the end of a process, is often the first sign of a lost machine: then the loss
    explains the incident that this has opened, and is no other.
    """
    current = open_incident(job)
    machine, gone = who
    lost = tuple(one.machine for one in gone)
    ways = options(job, joiners, missing, lost=gone, at_us=at_us)
    marks = {"heard": heard_us, "detect": at_us}
    ranks = tuple(rank for slot in sorted({*joiners, *missing}) for rank in job.spec.ranks(slot))
    joiner = next(iter(joiners.values()), None)
    if current is not None and current.rung == 1 and _is_sign(current, lost):
        marks["heard"] = min(heard_us, current.marks["heard"])
        marks["detect"] = current.marks["detect"]
        explained = {
            "machine": machine,
            "lost": lost,
            "joiner": joiner,
            "ranks": ranks,
            "cause": cause.text,
            "trigger": cause.trigger,
            "options": ways,
        }
        job = in_new_epoch(job, current.number, epoch, marks=marks, **explained)
        return job, current.number
    if current is not None:
        overtaken = current.kind is Kind.MOVE and job.change is not None
        outcome = Outcome.CANCELLED if overtaken else Outcome.SUPERSEDED
        note = f"overtaken: {cause.text}"
        job = amend(job, current.number, outcome=outcome, note=note, request="")
    number = next_number(job)
    new = Incident(
        number=number,
        kind=Kind.RECOVERY,
        machine=machine,
        lost=lost,
        joiner=joiner,
        ranks=ranks,
        cause=cause.text,
        trigger=cause.trigger,
        rung=1,
        why_rung="state and records live on other machines",
        options=ways,
        epoch=epoch,
        marks=marks,
    )
    return with_incident(job, new), number


def _is_sign(one: Incident, lost: Sequence[MachineId]) -> bool:
    """Tell whether an incident may have been the first sign of what is lost, or is known now."""
    return one.machine is None or (one.machine in lost and not one.lost)
