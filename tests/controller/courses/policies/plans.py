# SPDX-License-Identifier: Apache-2.0
"""What people ask of a job whose machines do at once what they are told: all of it is done, once,
and with as few moves as there can be; or nothing is, and they are told why.
"""

import random
from collections import Counter

from courses.trained import SECOND_US, Trained
from trainmover.controller.effects import Answer
from trainmover.controller.events import (
    CordonRequested,
    DrainRequested,
    Lost,
    MachineJoined,
    MachinesLost,
    MoveRequested,
    PlaceRequested,
    PlanSteered,
    RollRequested,
    UncordonRequested,
)
from trainmover.controller.policies.plans.known import Standing
from trainmover.controller.state import Kind, MachineState, Outcome
from trainmover.ids import MachineId, Rank
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

HOUR_US = 3600 * SECOND_US
LONG = 40
"""Seconds, by which all of it is done."""


def _of(chance: random.Random, **more: object) -> Trained:
    machines, standbys = chance.choice(((2, 1), (3, 1), (3, 2), (4, 2), (4, 3)))
    job = Trained(
        chance,
        machines=machines,
        standbys=standbys,
        nproc=chance.choice((1, 1, 2)),
        wait_s=60,
        **more,
    )
    job.trains()
    job.log.clear()
    return job


def _left(job: Trained) -> Counter[str]:
    """How often each machine has given up its ranks."""
    moves = [one for one in job.job.incidents if one.kind is Kind.MOVE]
    if failed := [one for one in moves if one.outcome is not Outcome.DONE]:
        raise Violation(f"moves came to nothing: {failed}")
    return Counter(
        str(leaver) for one in moves for leaver in (one.machine, *(a for a, _ in one.further))
    )


def _answers(job: Trained, request: str) -> list[Answer]:
    return [one for one in job.log if isinstance(one, Answer) and one.request == request]


def _started(job: Trained) -> Counter[str]:
    orders = [one for one in job.log if isinstance(getattr(one, "order", None), m.StartWorkers)]
    return Counter(str(getattr(one, "machine", "")) for one in orders)


def _is_answered(job: Trained, request: str, *, ok: bool, words: str = "") -> None:
    said = _answers(job, request)
    if len(said) != 1 or said[0].ok is not ok or words not in said[0].text:
        raise Violation(f"{request} is answered {said}; it went well: {ok}, {words!r}")


def _seats_are(job: Trained, seats: list[MachineId]) -> None:
    if [*job.job.seats] != seats:
        raise Violation(f"ranks are to be with {seats}, and are with {job.job.seats}")


def _roll(chance: random.Random) -> None:
    """Each named machine gives up its ranks once, and gets fresh processes, or stays out until
    somebody lets it in."""
    job = _of(chance)
    names = job.names if chance.random() < 0.5 else sorted(chance.sample(job.names, 2))
    given = [] if names == job.names else [str(name) for name in names]
    at_once, hold = chance.choice((1, 1, 2, 3)), chance.random() < 0.4
    seated = [name for name in names if name in job.job.seats]
    spares = len(job.names) - len(job.job.seats)
    roll = RollRequested(
        at_us=job.now_us, request="r", machines=given, at_once=at_once, hold=hold, reason="disks"
    )
    job.hear(roll)
    for _ in range(LONG):
        job.rests(1)
        plan = job.job.plan
        if plan is None or plan.standing is not Standing.GOING:
            break
        held = [*job.job.cordoned]
        if len(held) > at_once:
            raise Violation(f"{held} are kept out at once, {at_once} may be")
        for name in held:
            if hold and name not in job.job.seats:
                job.hear(
                    UncordonRequested(at_us=job.now_us, request=f"u{job.now_us}", machine=name)
                )
    plan = job.job.plan
    if plan is None or plan.standing is not Standing.DONE:
        raise Violation(f"the roll of {names} is not done: {plan}")
    _is_answered(job, "r", ok=True)
    if _left(job) != Counter(map(str, seated)):
        raise Violation(f"{seated} were to give up their ranks once: {_left(job)}")
    if _started(job) != (Counter() if hold else Counter(map(str, names))):
        raise Violation(f"{names} were to get fresh processes once: {_started(job)}, held {hold}")
    least = -(-len(seated) // min(at_once, spares))
    moves = len([one for one in job.job.incidents if one.kind is Kind.MOVE])
    if not least <= moves <= len(seated) or plan.moves != moves:
        raise Violation(f"{moves} moves for {seated}, {at_once} at once; said are {plan.moves}")
    if cause := [one.cause for one in job.job.incidents if "roll 1: disks" not in one.cause]:
        raise Violation(f"moves of a roll are said to be {cause}")
    if job.job.cordoned:
        raise Violation(f"the roll is over, and {job.job.cordoned} are kept out")


def _rolls_badly(chance: random.Random) -> None:
    """A machine whose turn it is is lost, or fails its warm-up, or has another one's turn stopped
    by somebody; then it goes on when it is told to, without who is gone."""
    job = _of(chance)
    how = chance.choice(("lost", "stopped", "no spare"))
    if how == "no spare":
        for name in job.names[len(job.job.seats) :]:
            job.hear(CordonRequested(at_us=job.now_us, request=f"c{name}", machine=name))
            job.settles()
    job.hear(RollRequested(at_us=job.now_us, request="r", machines=[], at_once=1))
    if how == "no spare":
        job.rests(2)
        plan = job.job.plan
        if plan is not None and plan.standing is Standing.DONE:
            raise Violation("all standbys are cordoned, and the roll is done")
        if _left(job):
            raise Violation(f"ranks went to a machine that is cordoned: {_left(job)}")
        return
    if how == "lost":
        gone = chance.choice(job.names[len(job.job.seats) :])
        lost = Lost(machine=gone, why="it is", heard_us=job.now_us)
        job.told.clear()
        job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
        plan = job.job.plan
        if plan is None or plan.standing is not Standing.STOPPED or gone not in plan.why:
            raise Violation(f"{gone} of a roll is lost, and that goes on: {plan}")
        return
    reason = chance.choice(("", "lunch"))
    job.told.clear()
    job.hear(PlanSteered(at_us=job.now_us, request="s", going=False, reason=reason))
    plan = job.job.plan
    why = reason or "somebody stopped it"
    if plan is None or plan.standing is not Standing.STOPPED or plan.why != why:
        raise Violation(f"the roll is stopped ({why}): {plan}")
    job.rests(3)
    if _left(job):
        raise Violation(f"the roll is stopped, and goes on: {_left(job)}")


def _place(chance: random.Random) -> None:
    """Slots are exchanged, or go to standbys: each moves once, and one of each ring once more."""
    job = _of(chance)
    before = [*job.job.seats]
    seats = chance.sample(job.names, len(before))
    if chance.random() < 0.4:
        seats = chance.sample(before, len(before))
    wanted = {slot: to for slot, to in enumerate(seats) if before[slot] != to}
    rings = _rings(before, seats)
    job.hear(PlaceRequested(at_us=job.now_us, request="p", seats=[*seats], reason="racks"))
    free = {*job.names} - {*before}
    if rings and not free - {*seats}:
        job.settles()
        _is_answered(job, "p", ok=False, words="Nothing was done")
        _seats_are(job, before)
        return
    job.rests(LONG)
    plan = job.job.plan
    if plan is None or plan.standing is not Standing.DONE:
        raise Violation(f"{before} were to become {seats}, and it is not done: {plan}")
    _is_answered(job, "p", ok=True)
    _seats_are(job, [*seats])
    moved, least = sum(_left(job).values()), len(wanted) + len(rings)
    if moved != least:
        raise Violation(f"{before} become {seats} by {moved} moves, {least} would do")


def _rings(before: list[MachineId], seats: list[MachineId]) -> list[set[int]]:
    """Slots whose machines are to have each other's."""
    rings, seen = [], set[int]()
    for first in range(len(before)):
        path, slot = [first], first
        while seats[slot] in before and before[slot] != seats[slot]:
            slot = before.index(seats[slot])
            if slot == first or slot in path:
                break
            path.append(slot)
        closed = before[first] != seats[first] and seats[path[-1]] == before[first]
        if closed and first not in seen:
            rings.append({*path})
            seen |= {*path}
    return rings


def _drain(chance: random.Random) -> None:
    """All that are named give up their ranks at once, and take none any more."""
    job = _of(chance)
    before = [*job.job.seats]
    spares = [name for name in job.names if name not in before]
    count = chance.randint(1, len(spares))
    names = chance.sample(before, min(count, len(before)))
    if chance.random() < 0.3 and len(names) < len(spares):
        names.append(spares[-1])
    moves = [name for name in names if name in before]
    drain = DrainRequested(at_us=job.now_us, request="d", machines=[*names], reason="heat")
    job.hear(drain)
    job.rests(3)
    _is_answered(job, "d", ok=True)
    if _left(job) != Counter(map(str, moves)) or len(job.job.incidents) != (1 if moves else 0):
        raise Violation(f"{moves} were to give up their ranks at once: {job.job.incidents}")
    if {*job.job.cordoned} != {*names} or {*names} & {*job.job.seats}:
        raise Violation(f"{names} are drained, and {job.job.cordoned} are kept out")
    if any("heat" not in cordon.reason for cordon in job.job.cordoned.values()):
        raise Violation(f"{names} are drained for heat: {job.job.cordoned}")


def _move(chance: random.Random) -> None:
    """One machine's ranks, to the standby that is readiest; and those of another at the same
    time are refused, as are those that cannot be moved."""
    job = _of(chance)
    before = [*job.job.seats]
    name = chance.choice(before)
    held = [one.id for one in job.job.machines.values() if one.held == before.index(name)]
    job.hear(MoveRequested(at_us=job.now_us, request="m", machine=name, reason="fan"))
    other = chance.choice((name, "m99", job.names[-1], chance.choice(before)))
    if chance.random() < 0.5:
        job.hear(MoveRequested(at_us=job.now_us, request="n", machine=other))
        job.rests(3)
        _is_answered(job, "n", ok=False, words="")
    job.rests(3)
    _is_answered(job, "m", ok=True)
    one = job.job.incidents[-1]
    ready = held or [spare for spare in job.names if spare not in before]
    if one.machine != name or one.joiner not in ready or "fan" not in one.cause:
        raise Violation(f"{name} was to be moved to one of {ready}: {one}")
    if one.downtime_ms != 50.0 or one.step_ms is None or name in job.job.seats:
        raise Violation(f"{name} was moved, and all stood for 50 ms: {one}")
    if job.job.machines[name].state not in (MachineState.WARM, MachineState.HOLDING):
        raise Violation(f"{name} is to be a standby again: {job.job.machines[name]}")


def _taken_away(chance: random.Random) -> None:
    """Machines say that they will be: their ranks go, all at once or whose time is over first; and
    nothing is done where that is only watched."""
    acts = chance.random() < 0.8
    job = _of(chance, notices="act" if acts else "watch")
    before = [*job.job.seats]
    spares = len(job.names) - len(before)
    names = chance.sample(before, chance.randint(1, 2))
    times = dict(zip(names, chance.sample((30, 90, 300), len(names)), strict=True))
    link = m.Interrupted(rank=Rank(0), epoch=job.job.epoch, reason="reset by peer")
    job.says(before[0], 0, link)  # While members change they wait for their turn.
    for name, left_s in times.items():
        job.agent_says(name, m.Leaving(left_ms=1000 * left_s))
    begun_us = job.now_us
    job.rests(3)
    if not acts:
        if job.job.cordoned or _left(job):
            raise Violation(f"it was to be watched only: {job.job.cordoned}")
        return
    ends = {name: cordon.until_us - begun_us for name, cordon in job.job.cordoned.items()}
    if ends != {name: left_s * SECOND_US for name, left_s in times.items()}:
        raise Violation(f"they will be taken away in {times}, and known is {ends}")
    soonest = sorted(names, key=lambda name: times[name])
    goes = soonest if len(names) <= spares else soonest[:spares]
    if _left(job) != Counter(map(str, goes)):
        raise Violation(f"{goes} were to go, of {times}: {_left(job)}")
    one = next(one for one in job.job.incidents if one.kind is Kind.MOVE)
    words = f"{', '.join(goes)} will be taken away, in {times[goes[0]]} s"
    if not one.cause.startswith(words):
        raise Violation(f"{one.cause!r} is to say {words!r}")
    name = goes[0]
    lost = Lost(machine=name, why="it is", heard_us=job.now_us)
    job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
    job.now_us += HOUR_US
    back = MachineJoined(at_us=job.now_us, machine=name, standby=True, vault=f"{name}:2", host="h")
    job.hear(back)
    if name in job.job.cordoned:
        raise Violation(f"another {name} has come, and is kept out: {job.job.cordoned}")


ASKED = (
    _roll, _roll, _rolls_badly, _place, _place, _drain, _move, _taken_away, _taken_away,
)  # fmt: skip


def play(chance: random.Random) -> None:
    """One of them."""
    chance.choice(ASKED)(chance)
