# SPDX-License-Identifier: Apache-2.0
"""A planned move: everything that can be done while the job trains is done before it pauses. Pure.

    bind      the joiner runs the script in the sandbox as the leaver's ranks and parks
    prepare   phase 1: groups of the next epoch are built beside those in use
    pause     the next gate carries the flag, so all ranks stop at the same boundary
    switch    the leaver gives state and record to the joiner; phase 2; go; the leaver leaves

Up to the switch everything can be cancelled and the job does not notice.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from trainmover.controller.change.backoff import move_failed, retry_us
from trainmover.controller.change.incidents import (
    amend,
    incident,
    mark,
    next_number,
    open_incident,
    with_incident,
)
from trainmover.controller.change.seats import (
    address_of,
    parked,
    seats_after,
    spare,
    survivors,
    with_machine,
)
from trainmover.controller.change.switching import go_when_switched, send_switch
from trainmover.controller.compare.replicas import replicas
from trainmover.controller.effects import Answer, Decision, Effect, Send, end
from trainmover.controller.events import MoveRequested
from trainmover.controller.standby.joiners import (
    choose_joiners,
    joiners_there_are,
    kept_out_text,
    unable_to_stand_by,
)
from trainmover.controller.state import (
    Cause,
    Change,
    Incident,
    Job,
    Kind,
    MachineState,
    Outcome,
    Phase,
    Stage,
    Trigger,
)
from trainmover.controller.values import replace
from trainmover.ids import Epoch, MachineId, Rank, Slot
from trainmover.protocol.messages import Discard, Leave, PauseAt, Prepare, Source

_LATER = "Ask again when it is done (trainmover status)."


def request_move(job: Job, event: MoveRequested) -> Decision:
    """Begin a move, or say why not."""
    machine = MachineId(event.machine)
    text = "a move was asked for" + (f": {event.reason}" if event.reason else "")
    cause = Cause(Trigger.MOVE, text)
    begun = begin_move(job, machine, cause, request=event.request, at_us=event.at_us)
    if isinstance(begun, str):
        return job, (Answer(event.request, ok=False, text=begun),)
    return begun


def begin_move(
    job: Job, machine: MachineId, cause: Cause, *, request: str, at_us: int
) -> Decision | str:
    """Return the job with the move under way; or why it is not."""
    return begin_moves(job, [machine], cause, request=request, at_us=at_us)


def begin_moves(
    job: Job,
    machines: Sequence[MachineId],
    cause: Cause,
    *,
    request: str,
    at_us: int,
    to: Mapping[Slot, MachineId] | None = None,
) -> Decision | str:
    """Begin a move of several machines as one change: all of them or none.

    to: who takes which slot; None: the readiest standbys
    """
    for machine in machines:
        if refusal := _why_not(job, machine):
            return refusal
        if not request and to is None and retry_us(job, machine):
            return _tried_later(job, machine, at_us)
    leavers = {slot: name for name in machines if (slot := job.slot_of(name)) is not None}
    joiners = choose_joiners(job, leavers, taken=()) if to is None else {**to}
    if joiners is None:
        return _no_standby(job, machines)
    first, *others = leavers
    epoch = Epoch(job.epoch_last + 1)
    number = next_number(job)
    new = Incident(
        number=number,
        kind=Kind.MOVE,
        machine=leavers[first],
        joiner=joiners[first],
        further=tuple((leavers[slot], joiners[slot]) for slot in others),
        ranks=tuple(rank for slot in leavers for rank in job.spec.ranks(slot)),
        cause=cause.text,
        trigger=cause.trigger,
        rung=0,
        why_rung="planned: no step is interrupted",
        epoch=epoch,
        request=request,
        marks={"begun": at_us},
    )
    change = Change(
        kind=Kind.MOVE,
        epoch=epoch,
        stage=Stage.BIND,
        incident=number,
        joiners=joiners,
        leavers=leavers,
        request=request,
    )
    return with_incident(replace(job, epoch_last=epoch, change=change), new), ()


def _why_not(job: Job, machine: MachineId) -> str:
    if why := why_not_running(job, "moved"):
        return why
    if machine not in job.machines:
        return unknown_machine(job, machine)
    if job.slot_of(machine) is None:
        seats = ", ".join(job.seats)
        return f"{machine} holds no ranks.\nNothing was moved.\nMachines with ranks: {seats}."
    current = open_incident(job)  # Until its first commit: each incident has a downtime of its own.
    if current is not None:
        now = "a move is running" if current.kind is Kind.MOVE else "a recovery is running"
        return f"{machine} was not moved: {now}.\nThe job trains on.\n" + _LATER
    if not job.all_recorded:
        return (
            f"{machine} was not moved: the first steps are not recorded yet.\n"
            "The job trains on.\nAsk again after a few steps."
        )
    if job.finished:
        return f"{machine} was not moved: the script is ending.\nThe job goes on to its end."
    return ""


def unknown_machine(job: Job, machine: str) -> str:
    """Three lines for a name that is no machine of the job."""
    names = [m.id for m in sorted(job.machines.values(), key=lambda m: m.place)]
    alike = get_close_matches(machine[:100], names, n=1, cutoff=0.7)
    meant = f"Did you mean {alike[0]}? " if alike else ""
    return (
        f"There is no machine {machine}.\nNothing was done.\n"
        f"{meant}The machines are {', '.join(names)}."
    )


def why_not_running(job: Job, act: str = "done") -> str:
    """Three lines while nothing can be asked of the job; "" if something can. act: what was not."""
    if job.phase is Phase.RUNNING:
        return ""
    return f"The job is {job.phase}: nothing was {act}.\nIt goes on.\nAsk again when it runs."


def why_not_each_once(names: Sequence[str]) -> str:
    """Three lines for a name that comes twice; "" if none does."""
    twice = next((name for name, times in Counter(names).items() if times > 1), "")
    return twice and f"{twice} is named twice.\nNothing was done.\nName each machine once."


def _tried_later(job: Job, machine: MachineId, at_us: int) -> str:
    count, _ = job.failed_moves[machine]
    left_s = max(0, retry_us(job, machine) - at_us) / 1e6
    return (
        f"{machine} was not moved: its last {count} moves came to nothing.\n"
        f"The job trains on.\nIt is tried again in {left_s:.0f} s."
    )


def _no_standby(job: Job, machines: Sequence[MachineId]) -> str:
    several = len(machines) > 1
    able = len(joiners_there_are(job, [Slot(job.seats.index(name)) for name in machines], ()))
    there = f"{able} standby{'s' * (able != 1)} of {len(machines)} can take ranks"
    notes = "; ".join(f"{m.id} is {m.state}: {m.note}" for m in job.machines.values() if m.note)
    notes += kept_out_text(job) if notes else kept_out_text(job).removeprefix("; ")
    cordoned = [machine.id for machine in spare(job) if machine.id in job.cordoned]
    free = [name for name in cordoned if name not in machines]
    do = (
        "More standbys would not help: mend what keeps these from taking ranks."
        if unable_to_stand_by(job)
        else "Add a standby (trainmover add), or wait until one is warm."
        if not free
        else f"Let one take ranks again (trainmover uncordon {free[0]}), or add one: trainmover add"
    )
    return (
        f"{', '.join(machines)} {'were' if several else 'was'} not moved: "
        f"{there if able else 'no standby is left'}{f' ({notes})' if notes else ''}.\n"
        f"The job trains on.\n{do}"
    )


def advance_move(job: Job, at_us: int) -> Decision:
    """Go on to the next stage if everything it needs has been said."""
    change = job.change
    assert change is not None
    everybody = job.spec.world_size
    match change.stage:
        case Stage.BIND if parked(job, change):
            job = _next_stage(mark(job, change.incident, "bind", at_us), Stage.PREPARE)
            return job, _prepare(job, change)
        case Stage.PREPARE if len(change.prepared) == everybody:
            job = _next_stage(mark(job, change.incident, "prepare", at_us), Stage.PAUSE)
            pause = PauseAt(epoch=change.epoch)
            return job, tuple(Send(machine, pause) for machine in job.seats)
        case Stage.PAUSE if len(change.at_boundary) == everybody:
            return _switch(job, at_us)
        case Stage.SWITCH:
            return go_when_switched(job, at_us)
        case _:
            return job, ()


def _prepare(job: Job, change: Change) -> tuple[Effect, ...]:
    """Joiners are told whose state they are to take, since part of it may be had beforehand."""
    effects = []
    for machine in seats_after(job, change):
        slots = [slot for slot, joiner in change.joiners.items() if joiner == machine]
        ranks = [rank for slot in slots for rank in job.spec.ranks(slot)]
        first = {rank: _sources(job, change, rank)[0] for rank in ranks}
        early = {rank: Source(one, address_of(job, job.seats, one)) for rank, one in first.items()}
        effects.append(Send(machine, Prepare(epoch=change.epoch, early=early)))
    return tuple(effects)


def _next_stage(job: Job, stage: Stage) -> Job:
    assert job.change is not None
    return replace(job, change=replace(job.change, stage=stage))


def _switch(job: Job, at_us: int) -> Decision:
    change = job.change
    assert change is not None
    steps = set(change.at_boundary.values())
    if len(steps) != 1:
        return end(
            job,
            1,
            f"The ranks paused at different steps: {sorted(steps)}.\n"
            "The job has ended: going on could train on wrong data.\nPlease report this.",
        )
    (step,) = steps
    job = amend(mark(job, change.incident, "pause", at_us), change.incident, step=step)
    job = replace(job, committed=step, change=replace(change, committed=step))
    moving = [rank for slot in change.joiners for rank in job.spec.ranks(slot)]
    return send_switch(job, {rank: _sources(job, change, rank) for rank in moving})


def _sources(job: Job, change: Change, rank: Rank) -> list[Rank]:
    """Return the leaver and its replicas; if it has diverged, only those who hold what it ought
    to."""
    others = replicas(job, rank, survivors(job, change))
    return others if others and rank in job.comparison.diverged else [rank, *others]


def cancel_move(job: Job, why: str, *, failed: bool = False) -> Decision:
    """Cancel before the switch: the joiner goes back to the pool, everybody else trains on."""
    change = job.change
    assert change is not None
    effects: list[Effect] = [
        Send(machine, Discard(epoch=change.epoch))
        for machine in job.seats
        if machine in job.machines
    ]
    for machine in change.joiners.values():
        if machine in job.machines and job.machines[machine].state is MachineState.BOUND:
            effects.append(Send(machine, Leave(epoch=change.epoch)))
            job = with_machine(job, machine, state=MachineState.LEAVING, said=frozenset())
    outcome = Outcome.FAILED if failed else Outcome.CANCELLED
    job = amend(job, change.incident, outcome=outcome, note=why, request="")
    job = replace(job, change=None)
    move = incident(job, change.incident)
    job = move_failed(job, change.leavers.values(), max(move.marks.values()))
    if change.request:
        names = ", ".join([str(move.machine), *(leaver for leaver, _ in move.further)])
        verb = "were" if move.further else "was"
        text = f"{names} {verb} not moved: {why}.\nThe job trains on."
        effects.append(Answer(change.request, ok=False, text=text, incident=change.incident))
    return job, tuple(effects)


def answer_done_moves(job: Job) -> Decision:
    """Whoever asked for a move learns of it when the first step after it is committed."""
    last = job.incidents[-1] if job.incidents else None
    if last is None or last.outcome is not Outcome.DONE or not last.request:
        return job, ()
    ranks = f"rank{'s' * (len(last.ranks) > 1)} " + ", ".join(map(str, last.ranks))
    pause = "" if last.downtime_ms is None else f": pause {last.downtime_ms:.0f} ms"
    text = f"{who_moves(last)} after step {last.step}{pause}; {ranks} kept."
    answer = Answer(last.request, ok=True, text=text, incident=last.number)
    return amend(job, last.number, request=""), (answer,)


def who_moves(move: Incident) -> str:
    """Return each machine, and the one that takes its ranks."""
    pairs = ((move.machine, move.joiner), *move.further)
    return ", ".join(f"{leaver} -> {joiner}" for leaver, joiner in pairs)
