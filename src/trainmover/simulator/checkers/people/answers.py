# SPDX-License-Identifier: Apache-2.0
"""Whoever asks is answered exactly once: never twice, and by when nothing is under way any more.
What the answer says is so: what is done is done, and a move that could be made is not refused.

Where a crash tears the event of the answer off the journal, the next controller gives it again, to
nobody.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.incidents import incident, open_incident
from trainmover.controller.effects import Answer, Send
from trainmover.controller.events import (
    REQUESTS,
    CordonRequested,
    DrainRequested,
    KillRequested,
    MoveRequested,
    PlaceRequested,
    PlanSteered,
    RollRequested,
    UncordonRequested,
)
from trainmover.controller.policies.plans.known import Placement, Roll, Standing
from trainmover.controller.state import Job, Kind, MachineState, Outcome, Phase
from trainmover.ids import MachineId
from trainmover.protocol.messages import Die
from trainmover.simulator.happenings import Decided, Replayed, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Answers:
    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.given: set[str] = set()
        self.moves: dict[str, list[str]] = {}

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided, Replayed: self.replayed}

    def decided(self, moment: Decided) -> None:
        if isinstance(moment.event, REQUESTS):
            self.asked.add(moment.event.request)
            self.moves[moment.event.request] = _machines(moment.event)
        for effect in moment.effects:
            if isinstance(effect, Answer):
                if effect.request in self.given:
                    raise Violation(f"request {effect.request} was answered twice")
                self.given.add(effect.request)
                self._is_so(moment, effect)
        job = moment.after
        if job.phase is Phase.RUNNING and job.change is None and open_incident(job) is None:
            waiting = {one.request for one in job.health.of.values()}
            for request in self.asked - self.given - waiting:
                raise Violation(f"request {request} was never answered, and nothing is under way")

    def _is_so(self, moment: Decided, answer: Answer) -> None:
        job, machines = moment.after, self.moves.get(answer.request, [])
        machine = machines[0] if machines else None
        match moment.event:
            case CordonRequested() | UncordonRequested() if answer.request == moment.event.request:
                asked = isinstance(moment.event, CordonRequested)
                if answer.ok and (machine in job.cordoned) != asked:
                    raise Violation(f"it is said to be done, and {machine} is not: {moment.event}")
                there = moment.before.machines if asked else moment.before.cordoned
                over = moment.before.code is not None or moment.before.saves_last
                if not answer.ok and machine in there and not over:
                    raise Violation(f"{machine} was not (un)cordoned: {answer.text}")
            case MoveRequested() if answer.request == moment.event.request and not answer.ok:
                if _could_move(moment, moment.event):
                    raise Violation(f"{machine} could be moved: {answer.text}")
            case KillRequested() if answer.request == moment.event.request:
                ordered = any(
                    isinstance(effect, Send) and isinstance(effect.order, Die)
                    for effect in moment.effects
                )
                if answer.ok != ordered:
                    raise Violation(f"{machine} was told to die: {ordered}; {answer.text}")
            case RollRequested() | PlaceRequested() if answer.request == moment.event.request:
                _is_planned(moment, moment.event, answer)
            case PlanSteered() if answer.request == moment.event.request:
                _is_steered(moment, moment.event, answer)
            case _ if answer.ok and answer.incident is not None:
                one = incident(job, answer.incident)
                left = [name for name in machines if name in job.seats]
                if (one.kind, one.outcome) == (Kind.MOVE, Outcome.DONE) and left:
                    raise Violation(f"{left} are said to have moved, and have ranks")
                if one.kind is Kind.MOVE and one.outcome is not Outcome.DONE:
                    raise Violation(f"the move of {machine} is said to be done: {one.outcome}")

    def replayed(self, moment: Replayed) -> None:
        if moment.torn:
            self.asked.clear()
            self.given.clear()


def _machines(event: REQUESTS) -> list[str]:
    match event:
        case DrainRequested():
            return event.machines
        case RollRequested() | PlaceRequested() | PlanSteered():
            return []
        case _:
            return [event.machine]


def _is_planned(moment: Decided, event: RollRequested | PlaceRequested, answer: Answer) -> None:
    """There is a new plan, of what was asked for, or there is none."""
    before, after = moment.before.plan, moment.after.plan
    if answer.ok != (after is not None and (before is None or after.number > before.number)):
        raise Violation(f"{answer.text}; the plan was {before}, and is {after}")
    if not answer.ok:
        if _could_begin(moment.before, event):
            raise Violation(f"{event} could be done: {answer.text}")
        return
    match event, after:
        case RollRequested(), Roll():
            asked = {*event.machines} or {*moment.before.machines}
            whole = {*after.left, *after.away, *after.over} == asked
            if not whole or (after.at_once, after.hold) != (event.at_once, event.hold):
                raise Violation(f"{event} has become {after}")
        case PlaceRequested(), Placement() if list(after.seats) == event.seats:
            pass
        case _:
            raise Violation(f"{event} has become {after}")


def _could_begin(job: Job, event: RollRequested | PlaceRequested) -> bool:
    """Of a placement only whether it names machines that can take any ranks is asked here."""
    quiet = job.phase is Phase.RUNNING and not (job.plan and job.plan.standing is Standing.GOING)
    names = event.machines if isinstance(event, RollRequested) else event.seats
    if not quiet or any(name not in job.machines for name in names) or len({*names}) < len(names):
        return False
    if isinstance(event, RollRequested):
        return event.at_once >= 1 and len(job.machines) > len(job.seats)
    free = [name for name in names if name not in job.seats]
    warm = all(job.machines[MachineId(name)].state is MachineState.WARM for name in free)
    spared = any(job.machines[MachineId(name)].suspect or name in job.cordoned for name in names)
    others = {*at_hand_names(job)} - {*names}
    return len(names) == len(job.seats) and warm and not spared and bool(others)


def at_hand_names(job: Job) -> list[MachineId]:
    """Standbys that are warm, and not cordoned."""
    return [
        name
        for name, one in job.machines.items()
        if one.state is MachineState.WARM and name not in {*job.seats, *job.cordoned}
    ]


def _is_steered(moment: Decided, event: PlanSteered, answer: Answer) -> None:
    """A plan that was going has stopped, or one that had stopped has gone on."""
    before, after = moment.before.plan, moment.after.plan
    fitting = Standing.STOPPED if event.going else Standing.GOING
    could = before is not None and before.standing is fitting
    if answer.ok and not could:
        raise Violation(f"{answer.text}; and the plan was {before}")
    if could and not answer.ok and moment.before.phase is Phase.RUNNING:
        raise Violation(f"{before} could be steered: {answer.text}")
    if answer.ok and not event.going and (after is None or after.standing is not Standing.STOPPED):
        raise Violation(f"{answer.text}; and the plan is {after}")


def _could_move(moment: Decided, event: MoveRequested) -> bool:
    """Nothing is under way, and a standby is warm."""
    job = moment.before
    quiet = job.phase is Phase.RUNNING and job.change is None and open_incident(job) is None
    if not quiet or job.finished or not job.all_recorded or event.machine not in job.seats:
        return False
    return any(
        machine.state is MachineState.WARM and name not in job.seats and not machine.suspect
        for name, machine in job.machines.items()
        if name not in job.cordoned
    )
