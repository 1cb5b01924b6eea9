# SPDX-License-Identifier: Apache-2.0
"""What a job does about a machine that is slow. Pure.

`watch` says what it would do. `act` has a standby hold the run of a machine that may be slow, and
of one that is it moves the ranks there, cordons it with what was seen, and measures whether that
has helped. A rank that is as slow elsewhere takes its slowness along: its machine is given free
again, and these ranks are never moved for slowness any more. One that is slower than before is
moved once more, away from the machine that it came to. What comes of a rank's own work, or is
everybody's, is said and nothing else.
"""

import statistics

from trainmover.controller.change.incidents import amend, found, lately
from trainmover.controller.change.move import begin_move
from trainmover.controller.change.options import of_slow
from trainmover.controller.change.seats import at_hand, with_cordon, without_cordon
from trainmover.controller.effects import Decision
from trainmover.controller.events import SlowFound, SlowMeasured, SlowSuspected
from trainmover.controller.policies.stragglers.known import (
    KEPT,
    Effect,
    Finding,
    SlowMove,
)
from trainmover.controller.standby.warming import hold_for
from trainmover.controller.state import Cause, Cordon, Job, Kind, Outcome, Trigger
from trainmover.controller.values import replace
from trainmover.ids import MachineId, Slot

PAUSE_MS = 500.0
"""What a move is believed to cost as long as this job has made none."""
STEPS_LEFT = 1000
"""So many are believed to follow where nobody knows how many do."""
HELPS = 0.5
"""Of what a step took more: so much of it is gone where a move has helped."""
BUSIER = 0.25
"""Of what a rank takes more, on its processor: it has more to do. Where ranks share cores the rest
of it waits for one. Who is kept from running is no longer on it, but for what it finds cold: 0.1.
"""
WORSE = 0.1
"""Of a usual step: so much more than before is worse."""


def slow_suspected(job: Job, event: SlowSuspected) -> Decision:
    """Have a standby ready by the time that it is no suspicion any more. Nothing else, as it may be
    chance; and not so often that standbys would do little but that."""
    known, slot = job.stragglers, job.slot_of(event.machine)
    if event.epoch != job.epoch or slot is None or job.spec.stragglers != "act":
        return job, ()
    if _in_vain(job, event.machine):
        return job, ()
    since_us = None if known.held_us is None else event.at_us - known.held_us
    held, effects = hold_for(job, slot, since_us)
    if not effects:
        return job, ()
    return replace(held, stragglers=replace(known, held_us=event.at_us)), effects


def slow_found(job: Job, event: SlowFound) -> Decision:
    """Say it, or act."""
    if event.epoch != job.epoch or (event.machine is not None and event.machine not in job.seats):
        return job, ()  # It is about a membership that is over.
    machine = _to_be_moved(job, event)
    why_not = _why_not(job, event, machine)
    if why_not or machine is None:
        return _noted(job, event, why_not), ()
    return _moved(job, event, machine, evidence(event))


def _to_be_moved(job: Job, event: SlowFound) -> MachineId | None:
    """Of a slow way the end that a move has not shown to be innocent."""
    machine, peer = event.machine, event.peer
    return peer if peer is not None and machine is not None and _in_vain(job, machine) else machine


def _in_vain(job: Job, machine: MachineId) -> bool:
    slot = job.slot_of(machine)
    moves = [move for move in job.stragglers.moves if move.slot == slot]
    return any(move.effect is Effect.VAIN for move in moves)


def _why_not(job: Job, event: SlowFound, machine: MachineId | None) -> str:
    """Why its ranks are not moved; "" if they are to be."""
    if machine is None:
        return "all are, so no machine would be faster"
    slot = job.slot_of(machine)
    if event.kind == "rank" or slot is None:
        return "they have more to do than others, which they would have elsewhere, too"
    moves = [move for move in job.stragglers.moves if move.slot == slot]
    if any(move.effect is Effect.OPEN and move.joiner == machine for move in moves):
        return "they have just come there, and are measured"
    if _in_vain(job, machine):
        return "a move was in vain before: it is the ranks, not the machine"
    if job.spec.stragglers != "act":
        return f"nothing is done; --stragglers act would {_would(job)}"
    steps = _steps_left(job, event)
    if (event.own_ms - event.usual_ms) * steps <= pause_ms(job):
        return f"a move costs {pause_ms(job):.0f} ms, and {steps} steps do not bring that back"
    return ""


def _would(job: Job) -> str:
    able = at_hand(job)
    return f"move them to {able[0].id}" if able else "move them, if there were a standby"


def _moved(job: Job, event: SlowFound, machine: MachineId, why: str) -> Decision:
    text = f"{machine} is slow: {why}"
    if event.peer is not None:
        text = f"the way between {event.machine} and {event.peer} is slow: {why}"
    begun = begin_move(job, machine, Cause(Trigger.SLOW, text), request="", at_us=event.at_us)
    if isinstance(begun, str):
        return _noted(job, event, begun.splitlines()[0]), ()
    job, effects = begun
    current = job.incidents[-1]
    slot, joiner = job.slot_of(machine), current.joiner
    assert slot is not None
    assert joiner is not None
    weighed = of_slow(
        job,
        more_ms=event.own_ms - event.usual_ms,
        steps=_steps_left(job, event),
        pause_ms=pause_ms(job),
    )
    job = amend(job, current.number, options=weighed)
    move = SlowMove(
        slot, machine, joiner, current.number, event.own_ms, event.usual_ms, kind=event.kind
    )
    job = _with_cordon(job, machine, Cordon(event.at_us, f"slow: {why}", spared=True))
    job = _noted(job, event, f"they are moved to {joiner}")
    return _with(job, moves=(*job.stragglers.moves, move)[-KEPT:]), effects


def slow_measured(job: Job, event: SlowMeasured) -> Decision:
    """What the move has come to."""
    moves = job.stragglers.moves
    if event.epoch != job.epoch or not moves or moves[-1].incident != event.incident:
        return job, ()
    move = moves[-1]
    if move.effect is not Effect.OPEN:
        return job, ()
    effect = _effect(move, event)
    gain_ms = (move.own_ms - move.usual_ms) - (event.own_ms - event.usual_ms)
    past = found(job, move.incident)
    cost_ms = 0.0 if past is None else past.downtime_ms or 0.0
    helped = effect is Effect.HELPED
    move = replace(
        move,
        effect=effect,
        own_after_ms=event.own_ms,
        usual_after_ms=event.usual_ms,
        repaid_steps=round(cost_ms / gain_ms, 1) if helped and gain_ms > 0 else None,
    )
    job = amend(_with(job, moves=(*moves[:-1], move)), move.incident, note=outcome_text(move))
    if helped:
        return job, ()
    job = _given_free(job, move)
    if effect is Effect.VAIN or _tries(job, move.slot) > 1:
        return job, ()
    return _away_again(job, event, move)


def _effect(move: SlowMove, event: SlowMeasured) -> Effect:
    before = (move.own_ms - move.usual_ms) / move.usual_ms
    after = (event.own_ms - event.usual_ms) / event.usual_ms
    if after > before + WORSE and event.busier < BUSIER:
        return Effect.WORSE
    return Effect.HELPED if after < before * (1 - HELPS) else Effect.VAIN


def _tries(job: Job, slot: Slot) -> int:
    return sum(move.slot == slot for move in job.stragglers.moves)


def _away_again(job: Job, event: SlowMeasured, move: SlowMove) -> Decision:
    """The machine that has taken the ranks is slower yet: it is cordoned in its turn."""
    why = f"{event.own_ms:.1f} ms a step of its own, {event.usual_ms:.1f} of its peers"
    text = f"{move.joiner} is slower than {move.leaver} was: {why}"
    begun = begin_move(job, move.joiner, Cause(Trigger.SLOW, text), request="", at_us=event.at_us)
    if isinstance(begun, str):
        return job, ()
    job, effects = begun
    current = job.incidents[-1]
    assert current.joiner is not None
    job = _with_cordon(job, move.joiner, Cordon(event.at_us, f"slow: {why}", spared=True))
    back = SlowMove(
        move.slot, move.joiner, current.joiner, current.number, event.own_ms, event.usual_ms
    )
    return _with(job, moves=(*job.stragglers.moves, back)[-KEPT:]), effects


def _given_free(job: Job, move: SlowMove) -> Job:
    """The machine was not slow; unless somebody else keeps it out."""
    cordon = job.cordoned.get(move.leaver)
    if cordon is None or not cordon.reason.startswith("slow: "):
        return job
    return without_cordon(job, move.leaver)


def pause_ms(job: Job) -> float:
    """What moves of this job have cost, in the median."""
    known = [
        one.downtime_ms
        for one in lately(job)
        if one.kind is Kind.MOVE and one.outcome is Outcome.DONE and one.downtime_ms is not None
    ]
    return statistics.median(known) if known else PAUSE_MS


def _steps_left(job: Job, event: SlowFound) -> int:
    length = max((fact.length for fact in job.recorded.values()), default=0)
    return max(length - event.step, 0) if length else STEPS_LEFT


def evidence(event: SlowFound) -> str:
    """What was seen."""
    steps = f"steps {event.step - event.steps + 1} to {event.step}"
    if event.peer is not None:
        longer = event.own_ms - event.usual_ms
        return f"they wait for each other {longer:.1f} ms a step longer than they did, {steps}"
    slower = 100 * (event.own_ms / event.usual_ms - 1) if event.usual_ms else 0.0
    return (
        f"{event.own_ms:.1f} ms a step of its own, {event.usual_ms:.1f} of its peers "
        f"({slower:+.0f} %), {steps}"
    )


def outcome_text(move: SlowMove) -> str:
    """What the move has come to, for people."""
    before = f"{move.own_ms:.1f} ms of {move.usual_ms:.1f} usual before"
    after = f"{move.own_after_ms:.1f} of {move.usual_after_ms:.1f} after"
    if move.effect is Effect.HELPED:
        paid = (
            ""
            if move.repaid_steps is None
            else f"; its pause is repaid by {move.repaid_steps} steps"
        )
        return f"it has helped: {before}, {after}{paid}"
    why = "it was in vain" if move.effect is Effect.VAIN else "it has made it worse"
    return f"{why}: {before}, {after}; {move.leaver} was not what was slow"


def _noted(job: Job, event: SlowFound, done: str) -> Job:
    findings = (*job.stragglers.findings, Finding(event, done))
    return _with(job, findings=findings[-KEPT:])


def _with_cordon(job: Job, machine: MachineId, cordon: Cordon) -> Job:
    """One that somebody has cordoned keeps his reason."""
    if machine in job.cordoned:
        return job
    return with_cordon(job, machine, cordon)


def _with(
    job: Job,
    findings: tuple[Finding, ...] | None = None,
    moves: tuple[SlowMove, ...] | None = None,
) -> Job:
    known = job.stragglers
    findings = known.findings if findings is None else findings
    moves = known.moves if moves is None else moves
    return replace(job, stragglers=replace(known, findings=findings, moves=moves))
