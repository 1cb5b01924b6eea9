# SPDX-License-Identifier: Apache-2.0
"""What is found of a machine is kept as it was found, and done about it is what was asked for.

signs       the same of the same machine, within an hour, is one finding; a grave one takes it out,
            if that was asked for and not many are out already
slowness    of a membership that is over nothing is kept; who is slow by himself is moved, if that
            was asked for, is worth its pause, was not in vain before, and can be
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.incidents import found
from trainmover.controller.change.move import begin_moves
from trainmover.controller.change.seats import at_hand
from trainmover.controller.events import AnomalyFound, SlowFound, SlowMeasured
from trainmover.controller.policies.anomalies.answer import AGAIN_US, PART, failing
from trainmover.controller.policies.anomalies.known import Finding
from trainmover.controller.policies.stragglers.answer import STEPS_LEFT, pause_ms
from trainmover.controller.policies.stragglers.known import Effect, SlowMove
from trainmover.controller.state import Cause, Job, Kind, Phase, Trigger
from trainmover.ids import MachineId
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Findings:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        if moment.after.anomalies is not moment.before.anomalies:
            _come_once(moment.after)
        match moment.event:
            case AnomalyFound() as event:
                _is_kept(moment.before, moment.after, event)
            case SlowFound() as event if moment.before.phase is Phase.RUNNING:
                _is_answered(moment.before, moment.after, event)
                _is_told(moment.before, moment.after, event)
            case SlowMeasured() as event if moment.before.phase is Phase.RUNNING:
                _is_measured(moment.before, moment.after, event)


def _come_once(job: Job) -> None:
    """What is found again within the hour is the same."""
    last: dict[tuple[str, str], int] = {}
    for one in job.anomalies.findings:
        before_us = last.get((one.machine, one.sign))
        if before_us is not None and one.at_us - before_us < AGAIN_US:
            raise Violation(f"{one} is kept twice: {job.anomalies.findings}")
        last[one.machine, one.sign] = one.at_us


def _is_kept(before: Job, after: Job, event: AnomalyFound) -> None:
    old, new = before.anomalies.findings, after.anomalies.findings
    if event.machine not in before.machines or before.spec.anomalies == "off":
        if new != old:
            raise Violation(f"{event} is of no machine that is watched, and kept: {new}")
        return
    seen = Finding(event.at_us, event.machine, event.sign, event.text, event.grave)
    known = [one for one in old if _is_same(one, seen)]
    if known:
        times = [one.times for one in new if _is_same(one, seen)]
        if len(new) != len(old) or times != [known[0].times + 1, *(k.times for k in known[1:])]:
            raise Violation(f"{event} has come again, and of {old} is left {new}")
        return
    if new[:-1] != old[-len(new) + 1 :] and len(new) > 1:
        raise Violation(f"{event} was found, and of {old} is left {new}")
    last = new[-1]
    if (last.at_us, last.machine, last.sign, last.text, last.grave, last.times) != (
        event.at_us, event.machine, event.sign, event.text, event.grave, 1,
    ):  # fmt: skip
        raise Violation(f"{event} is kept as {last}")
    out = failing(before)
    may = len(out) < max(1, len(before.machines) // PART) or event.machine in out
    acts = event.grave and before.spec.anomalies == "act" and may
    if acts and event.machine not in failing(after):
        raise Violation(f"{event} is grave, and {event.machine} may take ranks")
    claims = {
        "this alone is no reason": not event.grave,
        "it takes no ranks already": event.machine in out,
        "anomalies act would": before.spec.anomalies != "act",
        "so many machines at once": not may,
        "its ranks go to a standby": acts and event.machine in before.seats,
        "it takes no ranks": acts and event.machine not in before.seats,
    }
    said = [so for words, so in claims.items() if last.done.find(words) >= 0]
    if not said or not said[0]:
        raise Violation(f"{event}: people are told {last.done!r}, which is not so")


def _is_same(one: Finding, seen: Finding) -> bool:
    lately = seen.at_us - one.at_us < AGAIN_US
    return lately and (one.machine, one.sign) == (seen.machine, seen.sign)


def _is_answered(before: Job, after: Job, event: SlowFound) -> None:
    old, new = before.stragglers, after.stragglers
    over = event.epoch != before.epoch
    if over or (event.machine is not None and event.machine not in before.seats):
        if new != old:
            raise Violation(f"{event} is of a membership that is over: {new}")
        return
    if not new.findings or new.findings[-1].found != event or not new.findings[-1].done:
        raise Violation(f"{event} was found, and kept is {new.findings[-1:]}")
    moved = len(new.moves) - len(old.moves)
    machine = _to_go(before, event)
    if moved != (machine is not None):
        raise Violation(f"{event}: {machine} is to be moved, and {moved} are")
    if machine is None:
        return
    move, change = new.moves[-1], after.change
    if change is None or change.kind is not Kind.MOVE or [*change.leavers.values()] != [machine]:
        raise Violation(f"{event}: {machine} is to be moved, and the change is {change}")
    said = (move.leaver, move.slot, move.own_ms, move.usual_ms, move.kind, move.effect)
    if said != (
        machine, before.slot_of(machine), event.own_ms, event.usual_ms, event.kind, Effect.OPEN,
    ):  # fmt: skip
        raise Violation(f"{event} has become {move}")
    one = after.incidents[-1]
    stays, goes = one.options
    if (stays.ms, goes.ms) != (_more_ms(before, event), pause_ms(before)):
        raise Violation(f"{event} weighs {one.options}")
    if move.incident != one.number or move.joiner != one.joiner:
        raise Violation(f"{move} is of incident {one.number}, to {one.joiner}")


def _to_go(job: Job, event: SlowFound) -> MachineId | None:
    """Who is to be moved; None: nobody."""
    machine, peer = event.machine, event.peer
    if machine is None:
        return None
    if peer is not None and _was_in_vain(job, machine):
        machine = peer
    slot = job.slot_of(machine)
    mine = [move for move in job.stragglers.moves if move.slot == slot]
    measured = any(move.effect is Effect.OPEN and move.joiner == machine for move in mine)
    theirs = event.kind == "rank" or slot is None or measured or _was_in_vain(job, machine)
    worth = _more_ms(job, event) > pause_ms(job)
    if theirs or job.spec.stragglers != "act" or not worth:
        return None
    begun = begin_moves(job, [machine], Cause(Trigger.MOVE, ""), request="", at_us=event.at_us)
    return None if isinstance(begun, str) else machine


def _more_ms(job: Job, event: SlowFound) -> float:
    """What it would cost to leave it as it is: of all steps that are left."""
    length = max((fact.length for fact in job.recorded.values()), default=0)
    left = max(length - event.step, 0) if length else STEPS_LEFT
    return (event.own_ms - event.usual_ms) * left


def _was_in_vain(job: Job, machine: MachineId) -> bool:
    slot = job.slot_of(machine)
    return any(m.slot == slot and m.effect is Effect.VAIN for m in job.stragglers.moves)


# --- what people are told of it -------------------------------------------------------------------

HELPS, WORSE, BUSIER = 0.5, 0.1, 0.25
"""Of what it took more, of a usual step, and on its processor: as `answer` has them for people."""


def _is_told(before: Job, after: Job, event: SlowFound) -> None:
    """What is done, or why nothing is, with the figures that were weighed."""
    if after.stragglers == before.stragglers:
        return
    done, machine, job = after.stragglers.findings[-1].done, event.machine, before
    slot = None if machine is None else job.slot_of(machine)
    mine = [move for move in job.stragglers.moves if move.slot == slot]
    able = [one.id for one in at_hand(job)]
    length = max((fact.length for fact in job.recorded.values()), default=0)
    left = max(length - event.step, 0) if length else STEPS_LEFT
    claims = {
        "all are, so": machine is None,
        "they have more to do": event.kind == "rank",
        "they have just come there": any(one.effect is Effect.OPEN for one in mine),
        "in vain before": any(one.effect is Effect.VAIN for one in mine),
        "act would move them to ": done.endswith(f" {able[0]}" if able else " nobody"),
        "act would move them, if": not able,
        "a move costs": f" {pause_ms(job):.0f} ms, and {left} steps" in done,
        "they are moved to": any(done.endswith(f" {one.joiner}") for one in after.incidents[-1:]),
        "There is no machine": machine not in job.machines,
        "not moved: ": isinstance(
            begin_moves(job, [str(machine)], Cause(Trigger.MOVE, ""), request="", at_us=0),  # type: ignore[list-item]
            str,
        ),
    }
    said = [so for words, so in claims.items() if words in done]
    peer = event.peer is not None  # The other end may be meant.
    if not said or not (all(said) or peer):
        raise Violation(f"{event}: people are told {done!r}, which is not so")
    if "they are moved to" in done:
        _says_what_was_seen(after, event)


def _says_what_was_seen(job: Job, event: SlowFound) -> None:
    cause, move = job.incidents[-1].cause, job.stragglers.moves[-1]
    more, ended = event.own_ms - event.usual_ms, event.step
    words = [f"steps {ended - event.steps + 1} to {ended}"]
    if event.peer is None:
        words += [f"{move.leaver} is slow", f"{event.own_ms:.1f} ms", f"{event.usual_ms:.1f} of"]
        words += [f"({100 * more / event.usual_ms:+.0f} %)"] if event.usual_ms else []
    else:
        words += [f"between {event.machine} and {event.peer}", f"{more:.1f} ms a step longer"]
    if lacks := [one for one in words if one not in cause]:
        raise Violation(f"{event}: people are told {cause!r}, and not {lacks}")
    cordon = job.cordoned[move.leaver]
    ours = cordon.spared and cordon.reason.removeprefix("slow: ") in cause
    if cordon.at_us == event.at_us and not ours:
        raise Violation(f"{move.leaver} is slow ({cause}), and is cordoned: {cordon}")


def _is_measured(before: Job, after: Job, event: SlowMeasured) -> None:
    """By how much it takes longer now, of a usual step; that is said with both figures."""
    known = before.stragglers.moves
    late = event.epoch != before.epoch or not known or known[-1].incident != event.incident
    if late or known[-1].effect is not Effect.OPEN:
        if after.stragglers.moves != known:
            raise Violation(f"{event} is of no move that is measured, and now {after.stragglers}")
        return
    old = known[-1]
    new = next(one for one in after.stragglers.moves if one.incident == old.incident)
    was = (old.own_ms - old.usual_ms) / old.usual_ms
    now = (event.own_ms - event.usual_ms) / event.usual_ms
    effect = Effect.HELPED if now < was * (1 - HELPS) else Effect.VAIN
    if now > was + WORSE and event.busier < BUSIER:
        effect = Effect.WORSE
    if new.effect is not effect or (new.own_after_ms, new.usual_after_ms) != (
        event.own_ms,
        event.usual_ms,
    ):
        raise Violation(f"{event} was {was:.0%} more before, and has become {new}")
    past = found(before, old.incident)
    cost_ms = (past.downtime_ms or 0.0) if past is not None else 0.0
    gain_ms = (old.own_ms - old.usual_ms) - (event.own_ms - event.usual_ms)
    repaid = round(cost_ms / gain_ms, 1) if effect is Effect.HELPED and gain_ms > 0 else None
    if new.repaid_steps != repaid:
        raise Violation(f"{event} repays {cost_ms} ms in {repaid} steps: {new}")
    told = found(after, old.incident)
    figures = [f"{one:.1f}" for one in (old.own_ms, old.usual_ms, event.own_ms, event.usual_ms)]
    words = {Effect.HELPED: "it has helped", Effect.VAIN: "in vain", Effect.WORSE: "worse"}
    if told is not None and [one for one in (*figures, words[effect]) if one not in told.note]:
        raise Violation(f"{event}: people are told {told.note!r}")
    _is_kept_out(before, after, new)


def _is_kept_out(before: Job, after: Job, move: SlowMove) -> None:
    """Whoever was not slow is given free; nobody else is."""
    cordon = before.cordoned.get(move.leaver)
    ours = cordon is not None and cordon.reason.startswith("slow: ")
    free = ours and move.effect is not Effect.HELPED
    if cordon is not None and (move.leaver not in after.cordoned) != free:
        raise Violation(f"{move} was measured, and {move.leaver} is cordoned: {cordon}")
    if move.effect is not Effect.WORSE and len(after.cordoned) > len(before.cordoned):
        raise Violation(f"{move} was measured, and cordoned are {[*after.cordoned]}")
