# SPDX-License-Identifier: Apache-2.0
"""What people ask that cannot be: they are told why, and nothing is done; and what they ask with a
deadline, or while it is done already."""

import random
from statistics import median
from typing import Any

from courses.standby.remembering import Processes
from courses.trained import SECOND_US
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
from trainmover.controller.state import Outcome
from trainmover.ids import MachineId, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation


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
    said = job.ask(DrainRequested, machines=[seats[0]])
    if said is None or said.ok:
        raise Violation(f"{seats[0]} is gone, and others take its ranks: {said}")
    job.rests(1)
    if job.spares:
        words = f"{seats[0]} and {job.spares[0]} are cordoned: they take no ranks"
        job.is_granted(words, DrainRequested, machines=[seats[0], job.spares[0]])


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
        other = job.job.seats[0]
        job.is_granted("that it has it keeps", CordonRequested, machine=other)
        job.ask(UncordonRequested, machine=other)
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
    if job.chance.random() < 0.3:
        change = job.job.change
        joiner = next(iter(change.joiners.values())) if change is not None else name
        job.lose(joiner)
        said = job.last_answer()
        if said is None or said.ok or f"{name} was not moved" not in said.text:
            raise Violation(f"{joiner} is lost, which was to take {name}'s ranks: {said}")
        return
    job.rests(2)
    said = job.last_answer()
    if said is None or not said.ok or said.request != f"q{job.number}" or name in job.job.seats:
        raise Violation(f"{name} is elsewhere, and it is said {said}")
    other = next(one for one in job.spares if one != name) if len(job.spares) > 1 else name
    words = f"{other} is cordoned: it takes no ranks"
    job.is_granted(words, DrainRequested, machines=[other])


def play(chance: random.Random) -> None:
    """One of them."""
    chance.choice((_named_badly, _none_left, _in_time, _in_time))(chance)
