# SPDX-License-Identifier: Apache-2.0
"""All ranks wait in one call and nobody is missing: it may be the links between them. Pure.

Every machine dials the others, standbys among them, and again after a moment. Where two machines
with ranks twice had no way to each other, one goes: in whose place a standby would leave all with
ways to each other, and of those the one with the fewest. If no standby would, one goes only if it
has fewer ways than others: what all have lost is no machine's fault, and a network that comes back,
or is only slow, must find the job there.

If that tells nothing, and they have stood for long, the step is retried in place, once.
"""

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from trainmover.controller.change.interruption import interrupt
from trainmover.controller.effects import Decision, Send
from trainmover.controller.standstill.contact import waited_us
from trainmover.controller.standstill.stuck import Probing, Standstill
from trainmover.controller.state import Cause, Job, MachineState, Trigger
from trainmover.controller.values import replace
from trainmover.ids import MachineId
from trainmover.protocol.messages import Probe, Reached

ASK_AGAIN_US = 2_000_000
ANSWER_US = 5_000_000
"""For so long they may take to say whom they reach; who says nothing reaches nobody."""
LATELY_US = ASK_AGAIN_US + ANSWER_US
"""Twice means twice in one standstill."""
_STANDBYS = (MachineState.WARM, MachineState.HOLDING)

Ways = frozenset[tuple[MachineId, MachineId]]
"""From the first to the second of each pair."""


def all_stand(job: Job, standing: list[Standstill], at_us: int, *, long: bool) -> Decision:
    """Ask who reaches whom, but not again at once; or retry, if they have stood for long."""
    longest = min(standing, key=lambda one: one.since_us)
    step = max(one.fact.step for one in standing)
    still_s = (at_us - longest.since_us) / 1e6
    call = longest.fact.call or "a call"
    cause = f"all ranks stood still in step {step} for {still_s:.1f} s: each waits in {call}"
    if long and job.hanging.retried != step:
        job = replace(job, hanging=replace(job.hanging, retried=step))
        why = Cause(Trigger.STUCK, cause)
        return interrupt(job, why, machine=None, at_us=at_us, heard_us=longest.since_us)
    if at_us - job.hanging.asked_us < ASK_AGAIN_US:
        return job, ()
    number = job.hanging.probes + 1
    standbys = [name for name, one in job.machines.items() if one.state in _STANDBYS]
    asked = (*job.seats, *standbys)
    probing = Probing(number, job.epoch, cause, longest.since_us, asked)
    lately = at_us - job.hanging.asked_us < LATELY_US
    missing = job.hanging.missing if lately else frozenset()
    hanging = replace(job.hanging, probing=probing, probes=number, asked_us=at_us, missing=missing)
    job = replace(job, hanging=hanging)
    vaults = {name: job.machines[name].vault for name in asked}
    return job, tuple(
        Send(name, Probe(number=number, vaults={n: v for n, v in vaults.items() if n != name}))
        for name in asked
    )


def reached(job: Job, machine: MachineId, fact: Reached) -> Job:
    """A machine has dialled the others."""
    probing = job.hanging.probing
    if probing is None or probing.number != fact.number:
        return job
    probing = replace(probing, reached={**probing.reached, machine: fact.machines})
    return replace(job, hanging=replace(job.hanging, probing=probing))


class ToGo(NamedTuple):
    """A machine that is to be given up."""

    machine: MachineId
    cause: str
    since_us: int


def conclude(job: Job, at_us: int) -> tuple[Job, ToGo | None]:
    """Who is to go, once all have answered. A change that comes first ends the question."""
    probing = job.hanging.probing
    if probing is None:
        return job, None
    overtaken = probing.epoch != job.epoch or job.change is not None
    if not overtaken and _may_answer(job, probing, at_us):
        return job, None
    hanging = replace(job.hanging, probing=None)
    if overtaken:
        return replace(job, hanging=replace(hanging, missing=frozenset())), None
    missing = _missing(job, probing)
    twice = missing & job.hanging.missing
    job = replace(job, hanging=replace(hanging, missing=missing))
    worst = _to_go(job, probing.asked, twice)
    if worst is None:
        return job, None
    whole = 2 * (len(probing.asked) - 1)
    left = whole - sum(worst in way for way in twice)
    cause = f"{probing.cause}; {worst} has {left} of {whole} ways to the others"
    return job, ToGo(worst, cause, probing.since_us)


def _may_answer(job: Job, probing: Probing, at_us: int) -> bool:
    """Whether a machine in contact still has time to answer."""
    return any(
        name not in job.away and waited_us(job, name, job.hanging.asked_us, at_us) < ANSWER_US
        for name in probing.asked
        if name not in probing.reached
    )


def _missing(job: Job, probing: Probing) -> frozenset[tuple[MachineId, MachineId]]:
    """Return the ways that do not work; but not those of a machine without contact. As the other
    questions here it costs the square of the machines, since so many ways there are."""
    asked = set(probing.asked)
    return frozenset(
        (name, other)
        for name in probing.asked
        if name in probing.reached or name not in job.away
        for other in asked.difference(probing.reached.get(name, ()), (name,))
    )


def _to_go(job: Job, asked: Collection[MachineId], missing: Ways) -> MachineId | None:
    """One of those with ranks; None if they reach each other, or it is no machine's fault."""
    seats = set(job.seats)
    between = [way for way in missing if seats.issuperset(way)]
    in_between = Counter(name for way in between for name in way)
    lost = Counter(name for way in missing for name in way)
    standbys = [name for name in asked if name not in seats]
    mends = {
        name
        for name, ways in in_between.items()
        if ways == len(between) and _a_standby_reaches_all(standbys, seats - {name}, missing)
    }
    least = min(lost[name] for name in seats)
    fewer = {name for name in in_between if lost[name] > least}
    return min(
        mends or fewer, key=lambda name: (-lost[name], job.machines[name].place), default=None
    )


def _a_standby_reaches_all(
    standbys: Collection[MachineId], others: Collection[MachineId], missing: Ways
) -> bool:
    """There are few of whom this is asked: in every way that is missing they take part."""
    return any(
        not any((name, other) in missing or (other, name) in missing for other in others)
        for name in standbys
    )
