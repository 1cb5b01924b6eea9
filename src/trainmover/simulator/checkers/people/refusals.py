# SPDX-License-Identifier: Apache-2.0
"""Who is refused is told why, and it is so; and who asks for what can be done is not refused.

Each reason that people are given is looked for in the job itself. A refusal has changed nothing,
and says what follows from it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.incidents import open_incident
from trainmover.controller.decide import decide
from trainmover.controller.effects import Answer
from trainmover.controller.events import (
    REQUESTS,
    CheckpointFailed,
    CordonRequested,
    DrainRequested,
    HealthRequested,
    KillRequested,
    MoveRequested,
    PlaceRequested,
    PlanSteered,
    RollRequested,
    UncordonRequested,
)
from trainmover.controller.policies.plans.known import Standing
from trainmover.controller.state import Job, Kind, MachineState, Phase
from trainmover.ids import Epoch, MachineId, Step
from trainmover.simulator.checkers.losses.capacity import able
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

Reason = Callable[[Job, Any], bool]


class Refusals:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        event, job = moment.event, moment.before
        if not isinstance(event, REQUESTS):
            return
        for effect in moment.effects:
            if isinstance(effect, Answer) and effect.request == event.request:
                if effect.ok or " cordoned. " in effect.text:
                    _could_be(job, event, effect.text)
                else:
                    _is_so(job, event, effect.text)
                    _has_changed_nothing(moment)


def _named(event: REQUESTS) -> list[str]:
    match event:
        case DrainRequested() | RollRequested():
            return event.machines
        case PlaceRequested():
            return event.seats
        case PlanSteered():
            return []
        case _:
            return [event.machine]


def _are_unknown(job: Job, event: Any) -> bool:
    of_old = job.cordoned.keys() if isinstance(event, DrainRequested | CordonRequested) else ()
    return any(name not in job.machines and name not in of_old for name in _named(event))


def _comes_twice(job: Job, event: Any) -> bool:
    names = _named(event)
    return len({*names}) < len(names)


def _has_no_ranks(job: Job, event: Any) -> bool:
    return event.machine not in job.seats


def _runs(kind: Kind) -> Reason:
    def does(job: Job, event: Any) -> bool:
        one = open_incident(job)
        return one is not None and one.kind is kind

    return does


def _too_few(job: Job, event: Any) -> bool:
    there = [name for name in able(job) if name not in (*job.seats, *job.cordoned)]
    return len(there) < len([name for name in _named(event) if name in job.seats])


def _is_spared(job: Job, event: Any) -> bool:
    wanted = [name for now, name in zip(job.seats, event.seats, strict=False) if now != name]
    return any(name in job.cordoned for name in wanted)


def _lacks_another(job: Job, event: Any) -> bool:
    return {*able(job)} <= {*job.seats, *job.cordoned, *event.seats}


def _is_unfit(job: Job, event: Any) -> bool:
    machines = [job.machines[MachineId(name)] for name in event.seats if name in job.machines]
    return any(
        one.state is MachineState.COLD or one.suspect or one.torch != job.torch for one in machines
    )


def _stands(job: Job, event: PlanSteered) -> bool:
    fitting = Standing.STOPPED if event.going else Standing.GOING
    return job.plan is not None and job.plan.standing is not fitting


def _is_examined(job: Job, event: Any) -> bool:
    one = job.health.of.get(event.machine)
    return one is not None and not one.judged


def _has_ranks(job: Job, event: Any) -> bool:
    taking = {} if job.change is None else job.change.joiners
    return event.machine in (*job.seats, *taking.values())


MOVES = (MoveRequested, DrainRequested)
REASONS: list[tuple[str, tuple[type, ...], Reason]] = [
    ("There is no machine", (), _are_unknown),
    (": nothing was", (), lambda job, _: job.phase is not Phase.RUNNING),
    ("holds no ranks", (MoveRequested,), _has_no_ranks),
    ("a move is running", MOVES, _runs(Kind.MOVE)),
    ("a recovery is running", MOVES, _runs(Kind.RECOVERY)),
    ("the first steps are not recorded", MOVES, lambda job, _: not job.all_recorded),
    ("the script is ending", MOVES, lambda job, _: bool(job.finished)),
    ("not moved: ", MOVES, _too_few),
    ("No machine was named", (DrainRequested,), lambda _, event: not event.machines),
    ("is named twice", (DrainRequested, RollRequested, PlaceRequested), _comes_twice),
    (
        "The deadline is over",
        (DrainRequested,),
        lambda _, event: 0 < event.until_us <= event.at_us,
    ),
    ("machines at once are none", (RollRequested,), lambda _, event: event.at_once < 1),
    (
        "There is no standby",
        (RollRequested,),
        lambda job, _: len(job.machines) <= sum(name in job.machines for name in job.seats),
    ),
    (
        "is going on",
        (RollRequested, PlaceRequested),
        lambda job, _: job.plan is not None and job.plan.standing is Standing.GOING,
    ),
    (
        "machines were named for",
        (PlaceRequested,),
        lambda job, event: len(event.seats) != len(job.seats),
    ),
    ("is cordoned.", (PlaceRequested,), _is_spared),
    ("can take no ranks", (PlaceRequested,), _is_unfit),
    ("exchange their ranks", (PlaceRequested,), _lacks_another),
    ("There is no plan", (PlanSteered,), lambda job, _: job.plan is None),
    (
        "is not cordoned.",
        (UncordonRequested,),
        lambda job, event: event.machine not in job.cordoned,
    ),
    ("Nothing was done.\nThe job goes on.", (PlanSteered,), _stands),
    ("has ranks: an examination", (HealthRequested,), _has_ranks),
    ("is being examined", (HealthRequested,), _is_examined),
]
"""Words of a refusal, who may get it, and what must be so. The first that is in the text counts."""
SOMETIMES = {"There is no machine", ": nothing was", "not moved: ", "There is no standby"}
SOMETIMES |= {"can take no ranks", "exchange their ranks", "is cordoned."}
"""Of which some may be so, and what was asked for be possible all the same."""


def _is_so(job: Job, event: REQUESTS, text: str) -> None:
    for words, _, holds in REASONS:
        if words in text:
            if not holds(job, event):
                raise Violation(f"{event} was refused: {text!r}, which is not so")
            break
    else:
        raise Violation(f"{event} was refused for what nobody knows: {text!r}")
    over = job.phase is Phase.ENDED or job.saves_last
    if not over and (len(lines := text.split("\n")) < 2 or not all(lines)):
        raise Violation(f"{event} was refused, and nobody says what follows: {text!r}")
    if "The machines are " in text:
        names = text.rpartition("The machines are ")[2].rstrip(".").split(", ")
        if {*names} != {*job.machines} and job.machines:
            raise Violation(f"{text!r}; the machines are {[*job.machines]}")


def _could_be(job: Job, event: REQUESTS, text: str) -> None:
    for words, kinds, holds in REASONS:
        drains = kinds == MOVES and isinstance(event, DrainRequested)
        absolute = words not in SOMETIMES and not drains
        if isinstance(event, kinds) and absolute and holds(job, event):
            raise Violation(f"{event} was done ({text!r}), and {words}")
    lost = isinstance(event, MoveRequested | HealthRequested | KillRequested | DrainRequested)
    if lost and _are_unknown(job, event):
        raise Violation(f"{event} was done ({text!r}), and nobody knows that machine")


def _has_changed_nothing(moment: Decided) -> None:
    """Beyond what the time does that has passed."""
    at_us = moment.event.at_us
    nothing = CheckpointFailed(at_us=at_us, step=Step(-1), epoch=Epoch(-1), why="")
    later, _ = decide(moment.before, nothing)
    if later != moment.after:
        raise Violation(f"{moment.event} was refused, and has changed the job")
