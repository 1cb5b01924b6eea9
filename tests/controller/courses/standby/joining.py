# SPDX-License-Identifier: Apache-2.0
"""Standbys that are to join, or have had ranks: what becomes of them when they cannot, when another
is lost meanwhile, when steps are others, or when their ranks go elsewhere again."""

import random

from courses.standby.processes import Course
from courses.standby.remembering import RAISED, Proof
from trainmover.controller.change.seats import with_machine
from trainmover.controller.effects import Answer, Send
from trainmover.controller.events import DrainRequested, MoveRequested
from trainmover.controller.state import Kind, MachineState, Outcome
from trainmover.ids import Rank, Slot, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

SUSPECT = "its bits flip"


def _meanwhile(chance: random.Random) -> None:
    """Ranks make other steps, or another machine is lost, while a slot is on its way: nobody is
    told to run anything but who joins, and nobody joins with an old run."""
    course = Course(chance)
    job = course.job
    if chance.random() < 0.4:
        job.once = {*job.names}
        job.runs.update(job.job.seats)
    job.trains()
    slots = chance.sample(range(len(job.job.seats)), 2)
    course.started()
    first = course.lose(slots[0])
    stays = job.job.seats[slots[1]]
    job.mute = {*job.ranks}
    job.settles()
    joiner = job.job.change.joiners[Slot(slots[0])] if job.job.change is not None else first
    if chance.random() < 0.8:
        course.steps_change(slots[1])
        job.settles()
    two = len(job.names) - len(job.job.seats) > 1 and len(job.job.seats) > 2
    two = two and chance.random() < 0.6
    if two:
        course.lose(slots[1])
    idle = [one.id for one in course.spares if one.id != joiner] if not two else []
    if told := course.ran(idle):
        raise Violation(f"{slots} are on their way, and {told} are told to run something")
    job.mute = set()
    change = job.job.change
    for rank in job.ranks if change is not None else ():
        seat = job.job.seats[rank // job.nproc]
        if change is not None and seat in job.job.machines:
            there = m.AtBoundary(rank=Rank(rank), epoch=change.epoch, committed=job.step)
            job.says(seat, rank % job.nproc, there)
    course.is_recovered()
    if two is (stays in job.job.seats) or first in job.job.seats:
        raise Violation(f"{slots} are to have other machines: {job.job.seats}")
    job.rests(1)
    course.are_ready()


def _cannot_join(chance: random.Random) -> None:
    """A standby that was ready turns out not to be: another takes the ranks, or they stay."""
    course = Course(chance)
    job = course.job
    job.trains()
    job.gap_us, job.step = 400_000, Step(9)
    slot = chance.randrange(len(job.job.seats))
    before = [*job.job.seats]
    ready = [one.id for one in course.spares]
    holds = [one.id for one in course.spares if one.held == slot]
    bad = [chance.choice(holds)] if holds else ready
    how = chance.choice(("raises", "exits", "other trace"))
    job.refuses = dict.fromkeys(bad, how)
    move = chance.random() < 0.5
    if move:
        job.hear(MoveRequested(at_us=job.now_us, request="m", machine=before[slot]))
    else:
        course.lose(slot)
    job.rests(1)
    words = {"raises": RAISED, "exits": "signal 11", "other trace": "made other collectives"}[how]
    others = [name for name in ready if name not in bad]
    if move:
        said = [one for one in job.log if isinstance(one, Answer)]
        if len(said) != 1 or said[0].ok or words not in said[0].text or [*job.job.seats] != before:
            raise Violation(f"{bad} cannot take slot {slot}, it is said {said}")
        if any(one.kind is not Kind.MOVE for one in job.job.incidents):
            raise Violation(f"nothing was lost: {job.job.incidents}")
    elif how != "exits" and (others and job.job.seats[slot] not in others):
        raise Violation(f"{bad} cannot take slot {slot}, {others} can: {job.job.seats}")
    elif (
        how != "exits"
        and not others
        and (job.job.change is None or slot not in job.job.change.missing)
    ):
        raise Violation(f"nobody can take slot {slot}: {job.job.change}")
    sent = [one for one in job.log if isinstance(one, Send)]
    tried = {one.machine for one in sent if isinstance(one.order, m.Bind)}
    for name in tried.intersection(bad) if how != "exits" else ():
        one = job.job.machines[name]
        if one.state is not MachineState.COLD or words not in one.note:
            raise Violation(f"{name} could not join: {one}")


def _leaves(chance: random.Random) -> None:
    """Who has taken ranks gives them up again, and is a standby as before: in fresh processes where
    it needs them; or never again, if it is not trusted."""
    course = Course(chance)
    job = course.job
    if chance.random() < 0.6:
        job.once = {*job.names}
        job.runs.update(job.job.seats)
    job.trains()
    slot = chance.randrange(len(job.job.seats))
    distrusted = chance.random() < 0.3
    for turn in range(3 if len(course.spares) > 1 else 2):
        leaver = job.job.seats[slot]
        suspect = distrusted and turn == 1
        if suspect:
            job.job = with_machine(job.job, leaver, suspect=SUSPECT)
        course.started()
        job.hear(MoveRequested(at_us=job.now_us, request=f"m{turn}", machine=leaver))
        job.settles()
        job.rests(1)
        one = job.job.machines[leaver]
        if job.job.incidents[-1].outcome is not Outcome.DONE or leaver in job.job.seats:
            raise Violation(f"{leaver} was to give up slot {slot}: {job.job.incidents[-1]}")
        if suspect:
            if one.state is not MachineState.COLD or one.note != SUSPECT or course.ran([leaver]):
                raise Violation(f"{leaver} is not trusted, and is {one}")
            return
        if course.started()[leaver] != (leaver in job.once):
            raise Violation(f"{leaver} is to get fresh processes: {leaver in job.once}")
        course.are_ready()


def _breaks(chance: random.Random) -> None:
    """A run that was held for a while fails: it is no slot of that kind, and others it may be."""
    course = Course(chance)
    job = course.job
    job.trains()
    one = chance.choice(course.spares)
    assert one.held is not None
    kind, rank = one.held % job.stages, job.job.spec.ranks(one.held)[-1]
    other = Rank((rank + job.nproc) % job.job.spec.world_size)
    job.counts_for_nothing(one.id, 0, m.SandboxFailed(rank=other, reason="of before"))
    job.why[one.id] = RAISED
    job.proofs[one.id, kind] = Proof(failed=True)
    job.held.pop(one.id)
    job.says(one.id, rank % job.nproc, m.SandboxFailed(rank=rank, reason=RAISED))
    if job.job.change is not None:
        raise Violation(f"{one.id} has no ranks, and all stand: {job.job.change}")
    job.settles()
    fit = [kind for kind in course.kinds if not job.proofs.get((one.id, kind), Proof()).failed]
    now = job.job.machines[one.id]
    if (now.state is MachineState.COLD) is not (not fit):
        raise Violation(f"{one.id} can be {fit} yet, and is {now}")
    if not fit and RAISED not in now.note:
        raise Violation(f"{one.id} can be nothing any more: {now.note!r}")
    course.are_ready()


def _fails_as_another(chance: random.Random) -> None:
    """Who is to join is still at a run as a slot of another kind, and fails it: that is no matter;
    as one of the same kind it is."""
    course = Course(chance)
    job = course.job
    if job.stages < 2 or len(course.spares) > 1:
        return
    job.trains()
    job.gap_us = 400_000
    spare = course.spares[0].id
    course.steps_change(0)
    ((_, order),) = job.orders(m.WarmUp)
    job.told.clear()
    job.newest, job.runs[spare] = order.run, job.runs[spare] + 1
    job.held.clear()
    slot = Slot(chance.randrange(2))
    course.lose(slot)
    same = slot == order.slot
    job.refuses = {spare: "raises"} if same else {}
    job.why[spare] = RAISED
    job.proofs[spare, order.slot] = Proof(failed=True)
    local = chance.randrange(job.nproc)
    rank = job.job.spec.ranks(order.slot)[local]
    if job.nproc > 1:
        job.amid.add(spare)
    job.says(spare, local, m.SandboxFailed(rank=rank, reason=RAISED))
    job.settles()
    change = job.job.change
    if same and (change is None or change.missing != {slot}):
        raise Violation(f"{spare} cannot be slot {slot}, and nobody else is there: {change}")
    if not same and (change is not None or job.job.seats[slot] != spare):
        raise Violation(f"{spare} can be slot {slot}: {change}, {job.job.seats}")


def _two_were_to_move(chance: random.Random) -> None:
    """One of two that are to join cannot: neither does, and the other is a standby as before, if
    it could have."""
    course = Course(chance)
    job = course.job
    if len(course.spares) < 2:
        return
    job.trains()
    names = chance.sample(job.job.seats, 2)
    before = [*job.job.seats]
    drain = DrainRequested(at_us=job.now_us, request="d", machines=[*names])
    job.hear(drain)
    joiners = [name for name, _ in job.orders(m.Bind)]
    if len(joiners) != 2 or job.job.change is None:
        raise Violation(f"{names} are to be drained: {joiners} join, {job.job.change}")
    both = chance.random() < 0.5
    one = chance.choice(joiners)
    job.refuses = dict.fromkeys(joiners if both else [one], "raises")
    job.rests(1)
    said = [one for one in job.log if isinstance(one, Answer)]
    if len(said) != 1 or said[0].ok or RAISED not in said[0].text or [*job.job.seats] != before:
        raise Violation(f"{job.refuses} cannot join: {said}, {job.job.seats}")
    last = job.job.incidents[-1]
    if last.outcome is not Outcome.CANCELLED or RAISED not in last.note:
        raise Violation(f"{job.refuses} cannot join: {last}")
    for name in joiners:
        cold = job.job.machines[name].state is MachineState.COLD
        if cold is not (name in job.refuses):
            raise Violation(f"{job.refuses} cannot join: {job.job.machines[name]}")
    course.are_ready()


def play(chance: random.Random) -> None:
    """One of them."""
    ways = (
        _meanwhile, _meanwhile, _cannot_join, _leaves, _leaves, _breaks, _two_were_to_move,
        _fails_as_another, _fails_as_another,
    )  # fmt: skip
    chance.choice(ways)(chance)
