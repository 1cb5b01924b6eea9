# SPDX-License-Identifier: Apache-2.0
"""All ranks wait in one call, nobody is missing, and it is known which ways are gone.

Machines are asked twice whom they reach, two seconds apart. One that lacks ways that others have
goes, and nobody where it is no machine's fault, or where a way was gone once. If every way works
the step is tried again, once, after ten seconds or ten deadlines.
"""

import random
from itertools import permutations

from courses.standstill.watched import STEP, Watched, begun, nobody, stands
from courses.trained import SECOND_US, Trained
from trainmover.controller.events import CordonRequested
from trainmover.ids import MachineId, Rank
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

AGAIN_US, ANSWERS_US, ALL_US = 2 * SECOND_US, 5 * SECOND_US, 10 * SECOND_US

HOW = (
    "one", "pair", "spare", "all", "none", "mute", "once", "no spare", "before", "few", "kept out",
)  # fmt: skip
"""Which ways are gone; to or from a machine that nobody may replace; or that was so before."""

Way = tuple[MachineId, MachineId]


def _every_way_works(chance: random.Random) -> None:
    """All wait in one call for ten seconds, or ten deadlines, and every way works: the step is
    tried again, once."""
    job = begun(chance)
    deadline_ms = chance.choice((300, 1000, 1500))
    long_ms = max(ALL_US // 1000, 10 * deadline_ms)
    first = chance.choice([*job.ranks])
    for rank in job.ranks:
        still_ms = 2500 if rank == first else 1500
        stands(job, rank, "call", 8, still_ms=still_ms, deadline_ms=deadline_ms)
    until_us = job.now_us + 1000 * (long_ms - 1500)
    while job.now_us < until_us - 1:
        _answer(job, job.orders(m.Probe), set(), None)
        job.told.clear()
        job.passes(min(SECOND_US // 2, until_us - 1 - job.now_us))
        if job.job.change is not None:
            raise Violation(f"all stand for less than {long_ms} ms: {job.job.change}")
    job.passes(1)
    _all_reach_all(job)
    change, one = job.job.change, job.job.incidents[-1] if job.job.incidents else None
    if change is None or one is None or one.machine is not None or job.fenced():
        raise Violation(f"all have stood for {long_ms} ms: {change}, {one}")
    words = f"all ranks stood still in step {STEP} for {(long_ms + 1000) / 1000:.1f} s"
    if words not in one.cause or "all_reduce" not in one.cause:
        raise Violation(f"{one.cause!r} is to say {words!r}")
    job.settles()
    job.told.clear()
    for rank in job.ranks:
        stands(job, rank, "call", 8, still_ms=long_ms + 5)
    job.passes(SECOND_US)
    if job.job.change is not None:
        raise Violation(f"step {STEP} was tried again for standing already: {job.job.change}")
    for rank in job.ranks:
        stands(job, rank, "call", 9, still_ms=long_ms + 5, step=STEP + 1)
    _all_reach_all(job)
    if job.job.change is None:
        raise Violation(f"all stand in step {STEP + 1}, which was not tried again before")


def _some_are_gone(chance: random.Random) -> None:
    """All wait in the same call."""
    machines = chance.choice((2, 3, 5))
    how = chance.choice(HOW)
    job = Watched(chance, machines=machines, standbys=2, wait_s=0 if how == "kept out" else 60)
    job.trains()
    seats, spares = job.names[:machines], job.names[machines:]
    for name in spares if how == "kept out" else ():
        job.hear(CordonRequested(at_us=job.now_us, request=f"c{name}", machine=name))
    job.told.clear()
    worst, peer = chance.sample(seats, 2)
    gone: set[Way] = set()
    every = {*permutations(job.names, 2)}
    match how:
        case "one" | "mute" | "before" | "kept out":
            gone = {way for way in every if worst in way}
        case "pair" | "once":
            gone = {(worst, peer), (peer, worst)} if chance.random() < 0.5 else {(worst, peer)}
        case "no spare":
            gone = {(worst, peer)} | {(spare, seat) for spare in spares for seat in seats}
            if chance.random() < 0.5:
                gone = {(to, by) for by, to in gone}
        case "few":
            gone = {(worst, peer), (peer, worst)} | {way for way in every if spares[0] in way}
        case "spare":
            gone = {way for way in every if spares[0] in way}
        case "all":
            gone = {way for way in every if {*way} <= {*seats}} | {
                way for way in every if {*way} & {*spares}
            }
    _all_stand(job)
    if how == "before":
        _were_gone_before(job, gone)
    for turn in range(2):
        probes = job.orders(m.Probe)
        if sorted(name for name, _ in probes) != sorted(job.names) or job.fenced():
            raise Violation(f"all wait in one call, and {probes} are asked")
        job.told.clear()
        for name, probe in probes:
            if {*probe.vaults} != {*job.names} - {name}:
                raise Violation(f"{name} is to dial {probe.vaults}")
        missing = set() if how == "once" and turn else gone
        _answer(job, probes, missing, mute=worst if how == "mute" else None)
        if how == "mute":
            job.passes(ANSWERS_US - 1)
            nobody(job, f"{worst} may still answer")
            job.passes(1)
        if turn == 0:
            nobody(job, "ways may be gone for a moment")
            if how != "mute":
                job.passes(AGAIN_US - 1)
            if job.orders(m.Probe):
                raise Violation(f"they were asked less than {AGAIN_US} us ago, and are again")
            job.passes(1)
    _goes(job, how, gone, worst, peer)


def _all_reach_all(job: Trained) -> None:
    """As long as they are asked."""
    while job.job.change is None and (probes := job.orders(m.Probe)):
        _answer(job, probes, set(), None)
        job.told.clear()
        job.passes(1)


def _all_stand(job: Trained) -> None:
    for rank in job.ranks:
        stands(job, rank, "call", 8)


def _were_gone_before(job: Trained, gone: set[Way]) -> None:
    """In a standstill that is over: all have gone on, or members have changed while machines were
    asked."""
    _answer(job, job.orders(m.Probe), gone, None)
    job.told.clear()
    if job.chance.random() < 0.5:
        for rank in job.ranks:
            job.rank_says(rank, m.Moves(rank=Rank(rank), epoch=job.job.epoch))
        job.passes(AGAIN_US + ANSWERS_US)
    else:
        job.passes(AGAIN_US)
        probes = job.orders(m.Probe)
        cut = m.Interrupted(rank=Rank(0), epoch=job.job.epoch, reason="reset by peer")
        job.rank_says(0, cut)
        job.settles()
        _answer(job, probes, gone, None)
        job.passes(AGAIN_US)
    nobody(job, "nobody stands")
    _all_stand(job)


def _answer(
    job: Trained, probes: list[tuple[MachineId, m.Probe]], missing: set[Way], mute: MachineId | None
) -> None:
    for name, probe in probes:
        if name == mute:
            continue
        there = [other for other in job.names if other != name and (name, other) not in missing]
        late = m.Reached(number=probe.number - 1, machines=[])
        job.agent_says(name, late)
        job.agent_says(name, m.Reached(number=probe.number, machines=there))


def _goes(job: Trained, how: str, gone: set[Way], worst: MachineId, peer: MachineId) -> None:
    few = len(job.job.spec.argv) and job.job.spec.machines == 2
    match how:
        case "one" | "mute" | "before":
            expected = [worst]
        case "pair" | "few":
            expected = [min(worst, peer)]
        case "no spare":
            expected = [] if few else [min(worst, peer)]
        case _:
            expected = []
    fenced = job.fenced()
    if fenced != expected:
        raise Violation(f"{how}: {gone} are gone; {expected} is to go, and {fenced} does")
    if not expected:
        return
    ways = 2 * (len(job.names) - 1)
    left = ways - sum(expected[0] in way for way in gone)
    if (
        f"; {expected[0]} has {left} of {ways} ways to the others"
        not in job.job.incidents[-1].cause
    ):
        raise Violation(f"{left} of {ways} are left: {job.job.incidents[-1].cause}")


def play(chance: random.Random) -> None:
    """One standstill."""
    chance.choice((_every_way_works, _some_are_gone, _some_are_gone))(chance)
