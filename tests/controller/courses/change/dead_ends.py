# SPDX-License-Identifier: Apache-2.0
"""Recoveries that cannot go on: the job ends, with what it can tell of that, or begins anew where
hardly anything is lost; it never trains on with what may be wrong.
"""

import random
from typing import Any

import msgspec

from courses.change.broken import Breach
from courses.change.recoveries import Course
from courses.change.staged import MS
from courses.trained import SECOND_US
from trainmover.controller.events import Lost, MachineJoined, MachinesLost, Tick
from trainmover.controller.state import Outcome, Phase
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

MOST_IN_A_ROW = 8
WAIT_S = 60
LONG = 100
"""Steps, which are not made again from the beginning."""


def _broken(chance: random.Random, how: str = "loss", **knobs: Any) -> Course:
    course = Course(chance, **knobs)
    names = [chance.choice([*course.seats.values()])] if how != "link" else []
    course.breaks(Breach(how, names, "it is gone"))
    return course


def _no_record(chance: random.Random) -> None:
    """The one with which a lost rank would go on is nowhere."""
    course = _broken(chance)
    course.mixes = ("some past", "some not")
    positions, verdict = course.mix()
    course.held = course.records(verdict)
    lost = chance.choice(course.job.ranks_of([*course.joiners]))
    for its in course.held.values():
        its[lost] = [Step(verdict - 1), verdict]
    course.job.hears_all(course.stood(positions), "where ranks stood")
    course.job.ends(
        f"it is gone, and the record of rank {lost} for step {verdict + 1} is on no machine that "
        f"lives.\nThe job has ended after step {verdict}: there was no snapshot of all ranks yet."
    )


def _record_is_lost(chance: random.Random) -> None:
    """With the machine that alone had it, after all had counted on it."""
    course = _broken(chance)
    job = course.job
    if not course.spare:
        return
    course.drains()
    assert course.verdict is not None
    name, resume = chance.choice(course.spare), Step(course.verdict + 1)
    lost = chance.choice(job.ranks_of([*course.joiners]))
    for held in course.held.values():
        held.pop(lost, None)
    course.held[name][lost] = [resume]
    for said in course.stood({}):
        job.hears(said)
    gone = Lost(machine=name, why="it is", heard_us=job.now_us)
    epoch = job.epoch
    job.hear(MachinesLost(at_us=job.now_us, lost=[gone]))
    if job.epoch != epoch:
        raise Violation(f"{name} has no rank and takes none: {job.told}")
    job.hears_all(course.there(), "the boundary")
    left = [its for one, its in course.held.items() if one != name]
    lost = min(
        rank
        for rank in job.ranks_of([*course.joiners])
        if not any(resume in its.get(rank, []) for its in left)
    )
    job.ends(f"the record of rank {lost} for step {resume} is on no machine that lives.")


def _is_behind(chance: random.Random) -> None:
    """Ranks say what cannot be."""
    course = _broken(chance)
    ranks = course.job.ranks_of([*course.stays])
    course.held = course.records(course.base)
    if len(ranks) < 2:
        return
    behind, epoch, made = chance.choice(ranks), course.job.epoch, Step(course.base + 1)
    positions = {
        rank: m.Position(rank=rank, epoch=epoch, committed=made, gate=Step(0)) for rank in ranks
    }
    positions[behind] = msgspec.structs.replace(positions[behind], committed=course.base)
    course.job.hears_all(course.stood(positions), "where ranks stood")
    course.job.ends(f"rank {behind} is not at step {made} like the others")


def _none_alike(chance: random.Random) -> None:
    """Nobody else holds what a lost rank held, or everybody is lost; or nothing is to be kept."""
    every, why = chance.choice(((0, "snapshots were turned off"), (None, "there was no snapshot")))
    course = Course(chance, alike=False, snapshot_every=every)
    seats = [*course.seats.values()]
    all_gone = len(seats) <= len(course.spare) and chance.random() < 0.5
    if all_gone:  # Nobody is to be asked where he stands.
        course.job.goes_on()
        course.happens(Breach("loss", seats, "it is gone"))
        course.job.ends("it is gone, and no rank is left that could give its state.")
    else:
        course.breaks(Breach("loss", [chance.choice(seats)], "it is gone"))
        positions, verdict = course.mix()
        course.held = course.records(verdict)
        course.job.hears_all(course.stood(positions), "where ranks stood")
        rank = min(course.job.ranks_of([*course.joiners]))
        course.job.ends(f"it is gone, and no other rank holds the state of rank {rank}.")
    course.job.ends(why)


def _unproven(chance: random.Random) -> None:
    """Those who should hold the same do not: most of them are believed, if nothing stands against
    it; else nobody is."""
    course = _broken(chance)
    job, number = course.job, course.one.number
    course.drains()
    course.comes_to_boundary()
    stay = job.ranks_of([*course.stays])
    rank = chance.choice([*course.sources])
    other = chance.sample(stay, chance.randint(1, max(1, len(stay) // 2)))
    against = [chance.choice(stay)] if chance.random() < 0.3 else []
    most = [one for one in stay if one not in other]
    believed = len(most) > len(other) and not {*against} & {*most}
    said = m.Unproven(
        rank=rank, epoch=job.epoch, unlike=against,
        holders={one: "b" if one in other else "a" for one in stay},
    )  # fmt: skip
    epoch, name = job.epoch, course.joiners[rank // course.nproc]
    job.hears_all([(name, rank % course.nproc, said)], "the switch")
    orders = dict.fromkeys(job.job.machines, m.Interrupt(epoch=job.epoch))
    job.follows({**orders}, f"{said}")
    one = course.one
    if (job.epoch, one.number, one.epoch, one.certificates) != (epoch + 1, number, job.epoch, ()):
        raise Violation(f"the same incident goes on in epoch {epoch + 1}: {one}")
    course.doubted = frozenset(other)
    if believed:
        course.drains()
        course.comes_to_boundary()
        return
    positions, verdict = course.mix()
    course.held = course.records(verdict)
    job.hears_all(course.stood(positions), "where ranks stood")
    job.ends("ranks that held the state of rank")
    job.ends("have parted since")


def _wrong_state(chance: random.Random) -> None:
    course = _broken(chance)
    course.drains()
    course.comes_to_boundary()
    rank = chance.choice([*course.sources])
    name = course.joiners[rank // course.nproc]
    said = course.job.loaded(rank, course.sources[rank][0], wrong=True)
    course.job.hears((name, rank % course.nproc, said))
    course.job.ends(f"Rank {rank} did not receive the state its source sent")


def _again_and_again(chance: random.Random) -> None:
    """What breaks in each attempt is given up at last."""
    how = chance.choice(("link", "crash"))
    course = _broken(chance, "link" if how == "link" else "loss", sizes=((2, 1), (3, 1)))
    job = course.job
    words = f"recovery {MOST_IN_A_ROW} in a row without a committed step"
    joiner = next(iter(course.joiners.values()), None)
    before = 1 if how == "link" else 0
    for turn in range(before, MOST_IN_A_ROW):
        if how == "link":
            course.drains()
            course.comes_to_boundary()
        names = [] if joiner is None else [joiner]
        course.breaks(Breach(how, names, f"turn {turn}"))
        joiner = next(iter(course.joiners.values()), None)
    if how == "link":
        course.drains()
        course.comes_to_boundary()
    course.happens(Breach(how, [] if joiner is None else [joiner], "for good"))
    job.ends(words)
    job.ends(f"Look at what step {job.job.committed + 1} does")


def _same_step(chance: random.Random) -> None:
    """A step that does not come through three times, in which nothing was lost, is not tried
    again; and each time is told of."""
    course = Course(chance)
    course.troubles = 0
    if course.chance.random() < 0.3:
        course.breaks(Breach("loss", [course.seats[0]], "a loss"))
        course.drains()
        course.comes_to_boundary()
        course.switches()
    told = []
    first_us = 0
    for turn in range(3):
        name = chance.choice([*course.seats.values()])
        course.breaks(Breach("crash", [name], f"turn {turn}"))
        one, now_us = course.one, course.job.now_us
        first_us = first_us or now_us
        when = f"{(now_us - first_us) / 1e6:.1f} s later" if turn else "first"
        told.append(f"  incident {one.number}, {when} on {name}: {one.cause}\n")
        course.job.now_us += chance.randrange(1, 90) * SECOND_US
        if turn == 2:
            break
        course.drains()
        course.comes_to_boundary()
        course.switches()
        course.mixes = ("some not",)
    positions, verdict = course.mix()
    course.held = course.records(verdict)
    course.job.hears_all(course.stood(positions), "where ranks stood")
    course.job.ends(f"Step {course.base + 1} has failed 3 times:")
    course.job.ends("".join(told))


def _misled(chance: random.Random) -> None:
    """What was done between two steps cannot be done again: all begins from the beginning, unless
    many steps are made, or it has too often."""
    most, made = chance.choice((0, 2)), chance.choice((Step(4), Step(LONG - 2), Step(LONG + 2)))
    course = _broken(chance, restarts_max=most, made=made)
    job = course.job
    course.drains()
    rank = chance.choice(job.ranks_of([*course.stays]))
    for said in course.there():
        if getattr(said[2], "rank", None) == rank and isinstance(said[2], m.AtBoundary):
            said = (*said[:2], msgspec.structs.replace(said[2], misled=True))
        job.hears(said)
    why = f"what rank {rank} has done between two steps cannot be done again"
    newest = max(
        course.verdict or 0, *(s - 1 for its in course.one.held.values() for s in its[-1:])
    )
    if newest > LONG:
        job.ends(f"{why}.\nThe job has ended after step {newest}")
        return
    if not most:
        job.ends("The job has used its 0 restarts (--max-restarts).")
        return
    _begin_anew(course, why, newest)


def _begin_anew(course: Course, why: str, newest: int) -> None:
    job, after = course.job, {**course.seats, **course.joiners}
    one, known = course.one, job.job
    started = [name for name, _ in job.orders(m.StartWorkers)]
    if sorted(started) != sorted(known.machines) or known.phase is not Phase.STARTING:
        raise Violation(f"all begin anew: {job.told}, {known.phase}")
    if (one.rung, one.step, one.redone, known.committed) != (3, 0, newest, 0):
        raise Violation(f"{newest} steps are made again: {one}, {known.committed}")
    if not one.why_rung.startswith(why) or known.restarts != 1 or known.recorded:
        raise Violation(f"{why}: {one}, {known.restarts}, {known.recorded}")
    job.started += 1
    for name in sorted(known.machines):
        job.comes_up(name)
    runs = {name: order.slot for name, order in job.orders(m.RunRank)}
    if runs != {name: slot for slot, name in after.items()}:
        raise Violation(f"{after} begin anew: {runs}")
    if job.job.epoch != one.epoch or job.job.phase is not Phase.RUNNING:
        raise Violation(f"all are there, in epoch {one.epoch}: {job.job.epoch}")
    for rank in job.ranks:
        row = m.Row(step=Step(1), at_us=0, values={})
        fact = m.Committed(rank=Rank(rank), epoch=job.job.epoch, rows=[row], first=True)
        job.hears((after[rank // job.nproc], rank % job.nproc, fact))
    if course.one.outcome is not Outcome.DONE or job.job.committed != 1:
        raise Violation(f"all have made step 1: {course.one}, {job.job.committed}")


def _waited_for(chance: random.Random) -> None:
    """Two are lost, and there is one standby, or none: the job waits for others as long as it may,
    which does not begin anew with what is lost meanwhile."""
    course = Course(chance, sizes=((4, 1), (3, 1), (4, 0)))
    able = len(course.spare)
    job, seats = course.job, [*course.seats.values()]
    names = sorted(chance.sample(seats, 2))
    begun_us = job.now_us = job.now_us + MS
    lost = [Lost(machine=name, why="it is", heard_us=job.now_us) for name in names]
    job.hear(MachinesLost(at_us=job.now_us, lost=lost))
    change = job.job.change
    if change is None or (len(change.joiners), len(change.missing)) != (able, 2 - able):
        raise Violation(f"{names} are lost, {able} can join: {change}")
    ranks = job.ranks_of([slot for slot, name in course.seats.items() if name in names])
    if [*course.one.ranks] != ranks or (course.one.joiner is None) is not (able == 0):
        raise Violation(f"{ranks} are lost, {able} can join: {course.one}")
    if len(seats) > 3 and chance.random() < 0.5:
        more = next(name for name in seats if name not in names)
        job.now_us += 10 * SECOND_US
        gone = Lost(machine=more, why="it is", heard_us=job.now_us)
        job.hear(MachinesLost(at_us=job.now_us, lost=[gone]))
        names.append(more)
    change = job.job.change
    if change is None or len(change.missing) != len(names) - able:
        raise Violation(f"{names} are lost, {able} can join: {change}")
    until_us = begun_us + WAIT_S * SECOND_US
    if chance.random() < 0.5:
        job.now_us = until_us - 1
        job.hear(Tick(at_us=job.now_us))
        if job.end() is not None:
            raise Violation(f"until {until_us} it waits: {job.end()}")
        job.now_us = until_us
        job.told.clear()
        job.hear(Tick(at_us=job.now_us))
        machines = f"{len(names) - able} machine{'s' * (len(names) - able > 1)}"
        job.ends(f"{machines} must be replaced and ")
        job.ends(f"none has come in {WAIT_S} s")
        return
    for number in range(len(names) - able):
        name = MachineId(f"m{70 + number}")
        job.names.append(name)
        job.told.clear()
        job.hear(
            MachineJoined(
                at_us=job.now_us, machine=name, standby=True, vault=f"{name}:1", host=name
            )
        )
        change = job.job.change
        if change is None or name not in change.joiners.values():
            raise Violation(f"{name} has come, and takes no ranks: {change}")
        if m.Interrupt(epoch=job.epoch) not in [order for _, order in job.orders(m.Interrupt)]:
            raise Violation(f"{name} is not told of epoch {job.epoch}: {job.told}")
    joins = {} if change is None else change.joiners
    if len(joins) != len(names) or course.one.joiner not in joins.values():
        raise Violation(f"all are there: {change}, {course.one}")


WAYS = (
    _no_record,
    _record_is_lost,
    _is_behind,
    _none_alike,
    _wrong_state,
    _unproven,
    _unproven,
    _again_and_again,
    _same_step,
    _misled,
    _misled,
    _waited_for,
)


def play(chance: random.Random) -> None:
    """One of them."""
    chance.choice(WAYS)(chance)
