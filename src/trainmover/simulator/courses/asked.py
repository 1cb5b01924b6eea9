"""What people ask that cannot be: they are told why, and nothing is done; and plans that come upon
something: they stop and say why, and go on when they are told to, with what is left to do.
"""

import random
from collections import Counter
from statistics import median
from typing import Any

from trainmover.controller.effects import Answer
from trainmover.controller.events import (
    EVENTS,
    CordonRequested,
    DrainRequested,
    KillRequested,
    MoveRequested,
    PlaceRequested,
    PlanSteered,
    RollRequested,
    UncordonRequested,
)
from trainmover.controller.policies.plans.known import Roll, Standing
from trainmover.controller.state import Kind, MachineState, Outcome
from trainmover.ids import MachineId, Step
from trainmover.protocol import messages as m
from trainmover.simulator.courses.remembering import RAISED, Processes
from trainmover.simulator.courses.trained import SECOND_US
from trainmover.simulator.happenings import Violation

LONG = 30


class Asked(Processes):
    """bind_us: that a joiner takes to come."""

    def __init__(self, chance: random.Random, **knobs: Any) -> None:
        machines, standbys = chance.choice(((2, 1), (3, 2), (3, 3), (4, 2)))
        self.bind_us = 0
        super().__init__(
            chance, machines=machines, standbys=standbys, nproc=chance.choice((1, 2)), wait_s=60,
            **knobs,
        )  # fmt: skip
        self.trains()
        self.settles()
        self.log.clear()
        self.number = 0

    def _binds(self, name: MachineId, order: m.Bind) -> None:
        self.now_us += self.bind_us
        super()._binds(name, order)

    @property
    def spares(self) -> list[MachineId]:
        seats = self.job.seats
        return [name for name in self.names if name in self.job.machines and name not in seats]

    def ask(self, kind: Any, **more: Any) -> Answer | None:
        """And what is answered at once."""
        self.number += 1
        event: EVENTS = kind(at_us=self.now_us, request=f"q{self.number}", **more)
        told = len(self.told)
        self.hear(event)
        said = [one for one in self.told[told:] if isinstance(one, Answer)]
        if len(said) > 1 or any(one.request != f"q{self.number}" for one in said):
            raise Violation(f"{event} is answered {said}")
        return said[0] if said else None

    def is_refused(self, words: str, kind: Any, **more: Any) -> None:
        before = self.job
        said = self.ask(kind, **more)
        if said is None or said.ok or words not in said.text or self.job != before:
            raise Violation(f"{kind.__name__} {more} cannot be, {words!r}: {said}")

    def is_granted(self, words: str, kind: Any, **more: Any) -> None:
        said = self.ask(kind, **more)
        if said is None or not said.ok or words not in said.text:
            raise Violation(f"{kind.__name__} {more} can be, {words!r}: {said}")

    def last_answer(self) -> Answer | None:
        said = [one for one in (*self.log, *self.told) if isinstance(one, Answer)]
        return said[-1] if said else None

    def stands(self, standing: Standing, why: str = "") -> None:
        plan = self.job.plan
        if plan is None or plan.standing is not standing or why not in plan.why:
            raise Violation(f"the plan is to be {standing}, {why!r}: {plan}")

    def goes_on(self) -> None:
        """As long as it does."""
        for _ in range(LONG):
            self.rests(1)
            if self.job.plan is None or self.job.plan.standing is not Standing.GOING:
                return

    def given_up(self) -> Counter[str]:
        """How often each machine has given up its ranks in moves that are over."""
        moves = [one for one in self.job.incidents if one.kind is Kind.MOVE]
        done = [one for one in moves if one.outcome is Outcome.DONE]
        return Counter(
            str(name) for one in done for name in (one.machine, *(a for a, _ in one.further))
        )


def _named_badly(chance: random.Random) -> None:
    job = Asked(chance)
    seats, spares = [*job.job.seats], job.spares
    one = chance.choice(seats)
    job.is_refused("no machine m77", KillRequested, machine="m77")
    job.is_refused("no machine m77", CordonRequested, machine="m77")
    job.is_refused("no machine m77", UncordonRequested, machine="m77")
    job.is_refused(f"{one} is not cordoned", UncordonRequested, machine=one)
    job.is_refused("No machine was named", DrainRequested, machines=[])
    job.is_refused("no machine m77", DrainRequested, machines=[one, "m77"])
    job.is_refused(f"{one} is named twice", DrainRequested, machines=[one, spares[0], one])
    late = {"machines": [one], "until_us": job.now_us - chance.choice((0, 5))}
    job.is_refused("deadline is over", DrainRequested, **late)
    job.is_refused("no machine m77", RollRequested, machines=[one, "m77"])
    job.is_refused(f"{one} is named twice", RollRequested, machines=[one, spares[0], one])
    job.is_refused("0 machines at once are none", RollRequested, machines=[one], at_once=0)
    few = seats[1:]
    job.is_refused(f"for {len(seats)} slots", PlaceRequested, seats=few)
    job.is_refused("no machine m77", PlaceRequested, seats=[*few, "m77"])
    job.is_refused(f"{few[0]} is named twice", PlaceRequested, seats=[*few, few[0]])
    job.is_refused("There is no plan", PlanSteered, going=chance.random() < 0.5)
    job.is_refused(f"{spares[0]} holds no ranks", MoveRequested, machine=spares[0])
    _are_kept_out(job, spares[0])


def _are_kept_out(job: Asked, name: MachineId) -> None:
    """Who takes no ranks is no place for some."""
    seats = [*job.job.seats]
    reason = job.chance.choice(("", "dust"))
    job.is_granted(f"{name} is cordoned: it takes no", CordonRequested, machine=name, reason=reason)
    cordon = job.job.cordoned[name]
    if (cordon.at_us, cordon.reason) != (job.now_us, reason):
        raise Violation(f"{name} is cordoned for {reason!r}: {cordon}")
    job.is_refused(f"{name} is cordoned", PlaceRequested, seats=[name, *seats[1:]])
    job.is_granted(f"{seats[0]} is cordoned; the ranks", CordonRequested, machine=seats[0])
    if len(job.spares) == 1:
        job.is_refused("no standby is left", MoveRequested, machine=seats[1])
    job.is_granted("not cordoned any more", UncordonRequested, machine=name)
    if {*job.job.cordoned} != {seats[0]}:
        raise Violation(f"{seats[0]} is kept out: {job.job.cordoned}")
    job.told.clear()
    job.is_granted(f"{seats[0]} was told to die", KillRequested, machine=seats[0])
    if [to for to, _ in job.orders(m.Die)] != [seats[0]]:
        raise Violation(f"{seats[0]} is to die: {job.told}")
    killed_us = job.now_us
    job.now_us += SECOND_US
    job.lose(seats[0])
    heard = job.job.incidents[-1].marks["heard"]
    if heard != killed_us:
        raise Violation(f"{seats[0]} was killed at {killed_us}, heard of at {heard}")
    job.is_granted(f"{seats[0]} is cordoned", CordonRequested, machine=seats[0], reason="gone")
    both = [seats[0], name]
    words = f"{seats[0]} and {name} are cordoned: they take no ranks"
    if name not in job.job.change.joiners.values():  # type: ignore[union-attr]
        job.is_granted(words, DrainRequested, machines=both)


def _none_left(chance: random.Random) -> None:
    """All standbys are kept out, or cannot be any: nothing can be moved, and all stays."""
    job = Asked(chance)
    before = [*job.job.seats]
    for name in job.spares:
        job.ask(CordonRequested, machine=name)
    ring = [before[1], before[0], *before[2:]]
    job.is_refused("no other standby", PlaceRequested, seats=ring)
    said = job.ask(DrainRequested, machines=[before[0]], reason="heat")
    if said is None or said.ok or f"{before[0]} is cordoned. " not in said.text:
        raise Violation(f"{before[0]} is kept out, and stays: {said}")
    if before[0] not in job.job.cordoned or [*job.job.seats] != before or job.job.change:
        raise Violation(f"{before[0]} is kept out, and stays: {job.job.cordoned}, {job.job.change}")
    for name in job.spares:
        job.lose(name)
    job.settles()
    job.is_refused("There is no standby", RollRequested, machines=[before[0]])


def _in_time(chance: random.Random) -> None:
    """Moves have taken so long: whether one is likely to come too late is said as it begins."""
    job = Asked(chance)
    took: list[float] = []
    for turn in range(chance.randint(1, 3)):
        if len(job.spares) > 1 and chance.random() < 0.5:
            job.bind_us = 30 * SECOND_US
            _comes_to_nothing(job)
        job.bind_us = SECOND_US * chance.randrange(2, 9)
        name = job.job.seats[0]
        begun_us = job.now_us
        job.ask(MoveRequested, machine=name)
        job.settles()
        took.append((job.now_us - begun_us) / 1e6)
        one = job.job.incidents[-1]
        if one.outcome is not Outcome.DONE or name in job.job.seats:
            raise Violation(f"move {turn} of {name} is not done: {one}")
        job.rests(1)
    usual_s = median(took)
    left_s = chance.choice((1, 2, 5, 8, 60))
    name = job.job.seats[0]
    if chance.random() < 0.5:
        until_us = job.now_us + left_s * SECOND_US
        job.ask(DrainRequested, machines=[name], until_us=until_us, reason="heat")
        cause = "a move was asked for: heat"
    else:
        job.agent_says(name, m.Leaving(left_ms=1000 * left_s))
        cause = f"{name} will be taken away, in {left_s} s"
    late = (
        f"it may come too late: moves of this job take {usual_s:.1f} s, and {left_s:.1f} s are left"
    )
    truth = f"{cause}; {late}" if usual_s > left_s else cause
    one = job.job.incidents[-1]
    if one.cause != truth or one.machine != name:
        raise Violation(f"{truth!r} is so, and it is said {one.cause!r}")
    _is_waited_for(job, name, asked="was asked" in cause)


def _comes_to_nothing(job: Asked) -> None:
    """A recovery, or a move that is no more: neither says how long moves take."""
    job.step = Step(job.step + 3)
    if job.chance.random() < 0.5:
        job.lose(job.job.seats[1])
    else:
        job.ask(MoveRequested, machine=job.job.seats[1])
        change = job.job.change
        assert change is not None
        joiner = next(iter(change.joiners.values()))
        job.is_granted("that it is taking now it takes", CordonRequested, machine=joiner)
        job.now_us += 50 * SECOND_US
        job.lose(joiner)
    job.rests(1)


def _is_waited_for(job: Asked, name: MachineId, *, asked: bool) -> None:
    """Somebody drains what is on its way already: he is told when it is elsewhere."""
    if asked:
        said = job.ask(DrainRequested, machines=[name])
        if said is None or said.ok or "a move is running" not in said.text:
            raise Violation(f"{name} is on its way for somebody else: {said}")
        return
    before = job.job.incidents
    others = {"machines": job.chance.choice(([job.job.seats[1]], [name, job.job.seats[1]]))}
    said = job.ask(DrainRequested, **others)
    if said is None or said.ok or "a move is running" not in said.text:
        raise Violation(f"{name} is on its way, and {others} are to go: {said}")
    if job.ask(DrainRequested, machines=[name]) is not None:
        raise Violation(f"{name} is on its way: {job.told}")
    if len(job.job.incidents) != len(before):
        raise Violation(f"{name} is on its way, and another move begins: {job.job.incidents}")
    job.rests(2)
    said = job.last_answer()
    if said is None or not said.ok or said.request != f"q{job.number}" or name in job.job.seats:
        raise Violation(f"{name} is elsewhere, and it is said {said}")
    other = next(one for one in job.spares if one != name) if len(job.spares) > 1 else name
    words = f"{other} is cordoned: it takes no ranks"
    job.is_granted(words, DrainRequested, machines=[other])


def _roll_stops(chance: random.Random) -> None:
    """It comes upon something, stops, and goes on without what is gone."""
    job = Asked(chance)
    hold = chance.random() < 0.3
    names, seated = [*job.names], [*job.job.seats]
    order = [*job.spares, *seated]
    words = f"Roll 1 begins: {', '.join(order)}, in this order, 1 at a time"
    job.is_granted(words, RollRequested, reason="disks", hold=hold)
    job.is_refused("Roll 1 is going on", RollRequested)
    job.is_refused("Roll 1 is going on", PlaceRequested, seats=[*reversed(seated)])
    job.is_refused("Roll 1 is going", PlanSteered, going=True)
    how = chance.choice(("lost", "refuses", "stopped", "stopped"))
    job.partly(chance.randrange(12))
    left = job.job.plan.left if isinstance(job.job.plan, Roll) else ()
    if not left:
        return
    match how:
        case "lost":
            gone = chance.choice(left)
            job.lose(gone)
            if hold:
                _let_in(job)
            job.rests(1)
            job.stands(Standing.STOPPED, f"{gone} was lost")
            names.remove(gone)
            job.names.remove(gone)
        case "refuses":
            job.refuses = dict.fromkeys(job.names, "raises")
            if hold:
                _let_in(job)
            _until_stopped(job, hold=hold)
            job.stands(Standing.STOPPED, RAISED)
            return
        case "stopped":
            job.is_granted("Roll 1 has stopped", PlanSteered, going=False, reason="lunch")
            job.stands(Standing.STOPPED, "lunch")
            job.is_refused("Roll 1 is stopped", PlanSteered, going=False)
    before = job.given_up()
    job.rests(2)
    if how == "stopped" and job.given_up() - before - Counter(map(str, job.spares)):
        raise Violation(f"the roll is stopped, and goes on: {job.given_up()}")
    job.is_granted("Roll 1 goes on", PlanSteered, going=True)
    _until_stopped(job, hold=hold)
    if not job.spares:
        job.stands(Standing.STOPPED, "no standby can take the ranks of")
        return
    job.stands(Standing.DONE)
    plan = job.job.plan
    if plan is None or plan.why or plan.number != 1 or plan.cause != "roll 1: disks":
        raise Violation(f"the roll is over: {plan}")
    missed = [name for name in names if name in seated and not job.given_up()[name]]
    if missed or (how == "stopped" and max(job.given_up().values()) > 1):
        raise Violation(f"{missed} of {names} have not had their turn: {job.given_up()}")
    job.is_refused("Roll 1 is done", PlanSteered, going=True)


def _let_in(job: Asked) -> None:
    for name in [*job.job.cordoned]:
        if name not in job.job.seats:
            job.ask(UncordonRequested, machine=name)


def _until_stopped(job: Asked, *, hold: bool) -> None:
    for _ in range(LONG):
        job.rests(1)
        if hold:
            _let_in(job)
        if job.job.plan is None or job.job.plan.standing is not Standing.GOING:
            return


def _placement_stops(chance: random.Random) -> None:
    """Who was to take a slot is lost, or kept out, before it could."""
    job = Asked(chance)
    before, to = [*job.job.seats], job.spares[0]
    ring = len(job.spares) > 1 and chance.random() < 0.5 and len(before) > 2
    seats = [to, *before[1:]] if not ring else [to, before[2], before[1], *before[3:]]
    words = f"Placement 1 begins: slot 0 to {to}, "
    if chance.random() < 0.5:
        job.refuses = {to: "raises"}
    job.is_granted(words, PlaceRequested, seats=seats, reason="racks")
    if not job.refuses:
        job.goes_on()
        job.stands(Standing.DONE)
        if [*job.job.seats] != seats or any(
            "placement 1: racks" not in one.cause for one in job.job.incidents
        ):
            raise Violation(f"{seats} were to have ranks: {job.job.seats}")
        other = [before[0], *seats[1:]]
        job.is_granted("Placement 2 begins", PlaceRequested, seats=other)
        return
    job.goes_on()
    job.stands(Standing.STOPPED, "its last move came to nothing: ")
    job.is_granted("Placement 1 goes on", PlanSteered, going=True)
    job.goes_on()
    job.stands(Standing.STOPPED, f"{to} can take no ranks: ")
    if [*job.job.seats] != before or job.job.machines[to].state is not MachineState.COLD:
        raise Violation(f"{to} could not come: {job.job.seats}")
    job.lose(to)
    job.rests(1)
    job.is_granted("Placement 1 goes on", PlanSteered, going=True)
    job.goes_on()
    job.stands(Standing.STOPPED, f"{to} was lost")


def play(chance: random.Random) -> None:
    """One of them."""
    ways = (
        _named_badly,
        _none_left,
        _in_time,
        _in_time,
        _roll_stops,
        _roll_stops,
        _placement_stops,
    )
    chance.choice(ways)(chance)
