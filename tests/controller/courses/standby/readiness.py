# SPDX-License-Identifier: Apache-2.0
"""Standbys get ready: each proves once that it can be a slot of each kind, then each holds another
slot's run; who cannot be one is not taken for it, and is tried again later.
"""

import random
from collections import Counter

from courses.trained import SECOND_US, Trained
from trainmover.controller.effects import Send
from trainmover.controller.events import Lost, MachinesLost
from trainmover.controller.state import MachineState
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

COLD_S, OLD_S = 60, 600


class Course:
    def __init__(self, chance: random.Random, readiness: str = "held") -> None:
        self.chance, self.readiness = chance, readiness
        machines, standbys = chance.choice(((2, 1), (3, 2), (4, 3), (4, 2)))
        self.job = Trained(
            chance, machines=machines, standbys=standbys, nproc=chance.choice((1, 1, 2)),
            wait_s=60, readiness=readiness,
        )  # fmt: skip
        self.job.stages = chance.choice((1, 2, machines))
        self.kinds = [*range(self.job.stages)]
        self.spares = self.job.names[machines:]
        self.slots = machines

    def begins(self) -> None:
        self.job.trains()
        self.job.settles()

    def orders(self, *kinds: type[m.Order]) -> Counter[tuple[str, str, int]]:
        """Machine, order and kind of slot: how often since this was asked last."""
        sent = [one for one in self.job.log if isinstance(one, Send)]
        self.job.log = []
        return Counter(
            (one.machine, type(one.order).__name__, one.order.slot % self.job.stages)
            for one in sent
            if isinstance(one.order, m.WarmUp | m.Hold) and isinstance(one.order, kinds)
        )

    def prove(self, names: list[MachineId], what: str) -> None:
        """Each of these has proven each kind once, and nobody else has."""
        truth = Counter((name, "WarmUp", kind) for name in names for kind in self.kinds)
        if (said := self.orders(m.WarmUp)) != truth:
            raise Violation(f"{what}: {names} were to prove {self.kinds}, and {said} were told")

    def are_ready(self, names: list[MachineId]) -> None:
        job = self.job.job
        for name in names:
            one = job.machines[name]
            proven = [first for first in self.kinds if one.proven(first)]
            if one.state is not MachineState.WARM or proven != self.kinds:
                raise Violation(f"{name} is to be ready for {self.kinds}: {one}")
        held = [job.machines[name].held for name in names]
        if self.readiness != "held":
            if any(slot is not None for slot in held):
                raise Violation(f"nobody is to hold a run: {held}")
        elif None in held or len({*held}) < min(len(names), self.slots):
            raise Violation(f"{names} are to hold as many slots as they can: {held}")


def _all_ready(chance: random.Random) -> None:
    """By themselves, once the first steps are known; again when steps are others."""
    readiness = chance.choice(("held", "held", "warm", "idle"))
    course = Course(chance, readiness)
    course.begins()
    job = course.job
    if readiness == "idle":
        if told := course.orders(m.WarmUp, m.Hold):
            raise Violation(f"nobody is to run anything beforehand: {told}")
        return
    holds = Counter(name for name, what, _ in course_holds(course))
    if holds != (Counter(map(str, course.spares)) if readiness == "held" else Counter()):
        raise Violation(f"{course.spares} are each to hold one run, {readiness}: {holds}")
    course.are_ready(course.spares)
    course.orders()
    for rank in (0, job.ranks[-1]):
        said = m.StepsChanged(rank=Rank(rank), step=Step(9), trace="other", compiled="graph 2")
        job.rank_says(rank, said)
        job.settles()
    course.prove(course.spares, "steps are others, as two ranks say")
    course.are_ready(course.spares)


def course_holds(course: Course) -> list[tuple[str, str, int]]:
    """What was told by now, of which proofs are as they are to be."""
    log = [*course.job.log]
    course.prove(course.spares, "the first steps are known")
    course.job.log = log
    return [*course.orders(m.Hold).elements()]


def _proves_again(chance: random.Random) -> None:
    """What was proven ten minutes ago is, by one machine after the other."""
    course = Course(chance)
    course.begins()
    job = course.job
    course.orders()
    job.passes(OLD_S * SECOND_US - 1)
    job.settles()
    course.prove([], "ten minutes are not over")
    job.passes(1)
    busy = [n for n in course.spares if job.job.machines[n].state is not MachineState.WARM]
    if len(busy) != 1:
        raise Violation(f"one proves itself again at a time: {busy}")
    for _ in course.spares:
        job.settles()
        job.passes(1)
    job.settles()
    course.prove(course.spares, "ten minutes are over")
    course.are_ready(course.spares)


def _cannot(chance: random.Random) -> None:
    """One cannot be slots of a kind, or of none; it is tried again, each time after twice as
    long."""
    course = Course(chance)
    job = course.job
    name = chance.choice(course.spares)
    bad = course.kinds if chance.random() < 0.5 else [chance.choice(course.kinds)]
    job.unfit = {(name, f"t{kind}") for kind in bad}
    course.begins()
    one = job.job.machines[name]
    fit = [kind for kind in course.kinds if kind not in bad]
    course.are_ready([spare for spare in course.spares if spare != name])
    if not fit:
        _is_cold(course, name)
        return
    held = one.held
    if one.state is not MachineState.WARM or held is None or held % job.stages in bad:
        raise Violation(f"{name} can be {fit}, and not {bad}: {one}")
    if "it raised" not in one.note:
        raise Violation(f"{name} cannot be {bad}: {one.note!r}")
    slot = next(s for s in range(course.slots) if s % job.stages == bad[0])
    others = [spare for spare in course.spares if spare != name]
    lost = Lost(machine=job.job.seats[slot], why="its link has ended", heard_us=job.now_us)
    job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
    joiner = job.job.change.joiners.get(slot) if job.job.change is not None else None  # type: ignore[call-overload]
    if others and joiner not in others:
        raise Violation(f"{name} cannot be slot {slot}, {others} can: {joiner} is to take it")


def _is_cold(course: Course, name: MachineId) -> None:
    job = course.job
    wait_s = COLD_S
    for turn in range(3):
        one = job.job.machines[name]
        if one.state is not MachineState.COLD or "it raised" not in one.note:
            raise Violation(f"{name} can be nothing: {one}")
        job.passes(1)  # A beat has seen it cold.
        job.log = []
        job.passes(wait_s * SECOND_US - 1)
        if job.job.machines[name].state is not MachineState.COLD:
            raise Violation(f"{name} is tried again before {wait_s} s are over")
        if turn == 2:
            job.unfit = set()
        job.passes(1)
        if [machine for machine, _ in job.orders(m.StartWorkers)] != [name]:
            raise Violation(f"{name} is to be tried again after {wait_s} s: {job.told}")
        job.settles()
        wait_s *= 2
    course.are_ready([name])


def _taken(chance: random.Random) -> None:
    """Whoever holds the run of the slot takes it, else whoever is ready."""
    course = Course(chance)
    course.begins()
    job = course.job
    slot = chance.randrange(course.slots)
    holds = [name for name in course.spares if job.job.machines[name].held == slot]
    lost = Lost(machine=job.job.seats[slot], why="its link has ended", heard_us=job.now_us)
    job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
    change = job.job.change
    joiner = change.joiners.get(slot) if change is not None else None  # type: ignore[call-overload]
    if joiner not in (holds or course.spares):
        raise Violation(f"{holds} hold slot {slot}, and {joiner} is to take it")
    binds = job.orders(m.Bind)
    if [(name, order.slot) for name, order in binds] != [(joiner, slot)]:
        raise Violation(f"{joiner} is to take slot {slot}: {binds}")
    job.settles()
    rest = [name for name in course.spares if name != joiner]
    if job.job.seats[slot] != joiner:
        raise Violation(f"{joiner} was to take slot {slot}: {job.job.seats}")
    course.are_ready(rest)


def play(chance: random.Random) -> None:
    """One of them."""
    chance.choice((_all_ready, _all_ready, _proves_again, _cannot, _cannot, _taken))(chance)
