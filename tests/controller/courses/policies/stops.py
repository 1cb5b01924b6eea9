# SPDX-License-Identifier: Apache-2.0
"""Plans that come upon something: they stop and say why, and go on when they are told to, with what
is left to do."""

import random
from collections import Counter

from courses.policies.asked import Asked
from courses.standby.remembering import RAISED
from trainmover.controller.change.seats import with_machine
from trainmover.controller.effects import Send
from trainmover.controller.events import (
    CordonRequested,
    PlaceRequested,
    PlanSteered,
    RollRequested,
    UncordonRequested,
)
from trainmover.controller.policies.plans.known import Roll, Standing
from trainmover.controller.state import Kind, MachineState, Outcome
from trainmover.controller.values import replace
from trainmover.ids import MachineId, Rank
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

LONG = 30


class Planned(Asked):
    """A plan at a time."""

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


def _roll_stops(chance: random.Random) -> None:
    """It comes upon something, stops, and goes on without what is gone."""
    job = Planned(chance)
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
    before = len(job.job.incidents)
    job.rests(2)
    if len(job.job.incidents) != before:
        raise Violation(f"the roll is stopped, and goes on: {job.job.incidents}")
    job.is_granted("Roll 1 goes on", PlanSteered, going=True)
    _until_stopped(job, hold=hold)
    if not job.spares:
        job.stands(Standing.STOPPED, "no standby can take the ranks of")
        return
    _is_over(job, names)
    plan = job.job.plan
    if plan is None or plan.why or plan.number != 1 or plan.cause != "roll 1: disks":
        raise Violation(f"the roll is over: {plan}")
    missed = [name for name in names if name in seated and not job.given_up()[name]]
    if missed or (how == "stopped" and max(job.given_up().values()) > 1):
        raise Violation(f"{missed} of {names} have not had their turn: {job.given_up()}")
    job.is_refused("Roll 1 is done", PlanSteered, going=True)


def _is_over(job: Planned, names: list[MachineId]) -> None:
    """And each of these has had its turn, and is a standby again, or has ranks."""
    job.stands(Standing.DONE)
    plan = job.job.plan
    assert isinstance(plan, Roll)
    if sorted(plan.over) != sorted(names) or plan.left or plan.away:
        raise Violation(f"{names} were to have their turn: {plan}")


def _no_standby_any_more(chance: random.Random) -> None:
    """In fresh processes one turns out to be no standby; mended, it has its turn again."""
    job = Planned(chance)
    bad = chance.choice(job.spares)
    job.unfit = {(bad, "t0")}
    job.ask(RollRequested, machines=[bad, job.job.seats[0]])
    names = [bad, job.job.seats[0]]
    job.goes_on()
    job.stands(Standing.STOPPED, f"{bad} is no standby any more: ")
    for _ in range(chance.randint(0, 1)):
        job.is_granted("Roll 1 goes on", PlanSteered, going=True)
        job.goes_on()
        job.stands(Standing.STOPPED, f"{bad} is no standby any more: ")
    job.unfit = set()
    job.is_granted("Roll 1 goes on", PlanSteered, going=True)
    job.log.clear()
    job.goes_on()
    _is_over(job, names)
    fresh = [one.machine for one in job.log if isinstance(one, Send) and _starts(one)]
    if Counter(fresh) != Counter(names) or job.given_up() != Counter([str(names[1])]):
        raise Violation(f"{names} have their turns: {fresh} start anew, {job.given_up()} moved")


def _starts(one: Send) -> bool:
    return isinstance(one.order, m.StartWorkers)


def _away(chance: random.Random) -> None:
    """Whose turn it is is lost, or kept out by somebody; where that is what a roll is for it is no
    matter."""
    job = Planned(chance)
    hold, name = chance.random() < 0.5, job.spares[0]
    dusty = chance.choice((name, job.job.seats[-1]))
    if hold:
        job.ask(CordonRequested, machine=dusty, reason="dust")
    names = [*job.names] if len(job.spares) > 1 else [name]
    job.ask(RollRequested, machines=names, hold=hold, reason="disks")
    plan = job.job.plan
    if not isinstance(plan, Roll) or plan.away != (name,):
        raise Violation(f"{name} is the first: {plan}")
    truth = "dust" if dusty == name else "roll 1: disks"
    if hold and job.job.cordoned[name].reason != truth:
        raise Violation(f"{name} is kept out, {truth!r}: {job.job.cordoned}")
    if not hold and name in job.job.cordoned:
        raise Violation(f"{name} is to be no more than renewed: {job.job.cordoned}")
    lost = chance.random() < 0.5
    if lost:
        job.lose(name)
        job.rests(1)
    elif not hold:
        job.ask(CordonRequested, machine=name)
    if lost and not hold:
        job.stands(Standing.STOPPED, f"{name} was lost")
        job.is_granted("Roll 1 goes on", PlanSteered, going=True)
        names.remove(name)
    for _ in range(LONG):
        job.rests(1)
        _let_in(job)
    _is_over(job, names)


def _all_at_once(chance: random.Random) -> None:
    """Standbys that are to take slots are on their way to be ready: they are waited for, and all is
    one change; who can be none is not."""
    job = Planned(chance)
    before, spares = [*job.job.seats], job.spares
    never = chance.choice(("", "torch", "suspect"))
    if never:
        odd = spares[-1]
        suspect = {"suspect": "its bits flip", "state": MachineState.LEAVING, "held": None}
        more = {"torch": "3"} if never == "torch" else suspect
        job.job = with_machine(replace(job.job, torch="2"), odd, **more)
        why = f"{odd} can take no ranks: "
        job.is_refused(why, PlaceRequested, seats=[odd, *before[1:]])
        if len(spares) == 1:
            ring = [before[1], before[0], *before[2:]]
            job.is_refused("no other standby", PlaceRequested, seats=ring)
            if never == "suspect":
                job.ask(RollRequested, machines=[before[0]])
                job.stands(Standing.STOPPED, f"no standby can take the ranks of {before[0]}")
            return
        spares = spares[:-1]
    said = m.StepsChanged(rank=Rank(0), step=job.step, trace="other", compiled="g")
    job.old |= {*job.held}
    job.says(before[0], 0, said)
    count = min(len(spares), len(before))
    rolls = chance.random() < 0.5
    seats = [*spares[:count], *before[count:]]
    if rolls:
        job.ask(RollRequested, machines=before[:count], at_once=count)
    else:
        job.ask(PlaceRequested, seats=seats)
    job.goes_on()
    job.stands(Standing.DONE)
    moves = [one for one in job.job.incidents if one.kind is Kind.MOVE]
    if job.given_up() != Counter(map(str, before[:count])):
        raise Violation(f"{before[:count]} were to give up their ranks: {moves}")
    if not rolls and (len(moves) != 1 or [*job.job.seats] != seats):
        raise Violation(f"{spares[:count]} were to take ranks at once: {moves}, {job.job.seats}")


def _let_in(job: Planned) -> None:
    for name in [*job.job.cordoned]:
        if name not in job.job.seats:
            job.ask(UncordonRequested, machine=name)


def _until_stopped(job: Planned, *, hold: bool) -> None:
    for _ in range(LONG):
        job.rests(1)
        if hold:
            _let_in(job)
        if job.job.plan is None or job.job.plan.standing is not Standing.GOING:
            return


def _placement_stops(chance: random.Random) -> None:
    """Who was to take a slot is lost, or kept out, before it could."""
    job = Planned(chance)
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
        _roll_stops, _roll_stops, _placement_stops, _no_standby_any_more, _away, _away,
        _all_at_once,
    )  # fmt: skip
    chance.choice(ways)(chance)
