# SPDX-License-Identifier: Apache-2.0
"""What a job asks of its engine: machines it lacks, and to take back those it needs no more. Pure.

    lacks machines         -> Acquire     the want stays in the job until each name is granted
    a machine is to go, and has no ranks; is lost, late, or one too many    -> Release

Everything an engine has to know follows from the job (`Capacity`), at any moment: an engine that
was away asks for it again, and one that is told twice does nothing twice. A job counts what it has
and what is to come, so a slow engine is not asked for the same machine again.
"""

from collections.abc import Iterator

from trainmover.controller.change.seats import other_torch, spare, with_cordon, without_cordon
from trainmover.controller.effects import Acquire, Decision, Effect, Release, end
from trainmover.controller.policies.capacity.known import (
    Capacity,
    Denial,
    Grant,
    Need,
    Returned,
    Want,
)
from trainmover.controller.state import Cordon, Job, MachineState, Outcome, Phase
from trainmover.controller.values import replace
from trainmover.ids import MachineId

JOIN_US = 120_000_000
"""From a grant to when its machine has joined; imports on a cold file system take their time."""
AVOID_US = 300_000_000
"""For which a node is not asked for again that lost a machine: a scheduler may not know yet."""
KEPT_US = 3_600_000_000
"""For which a returned name is known: who comes by it is let go."""
FAILED_US, FAILED_US_MAX = 1_000_000, 64_000_000
"""Before another machine is wanted, where the last ones never joined: doubled for each of them."""
FAILURES_MAX = 8
_NONE_JOINS = (
    "The machines that {} starts end before they join: {}\n"
    "Nothing was begun; the job has ended.\n"
    "Mend what their agents say, and start it again."
)
_FROM = ("machines", "cordoned", "seats", "keepers", "change", "incidents", "capacity", "phase")
"""Fields of a job that its wants follow from."""
ASKED = "it goes back to its engine"


def tend_capacity(job: Job, settled: Job, at_us: int) -> Decision:
    """Ask for what the job lacks and give back what it need not have. settled: before the event."""
    if _is_off(job):
        return job, ()
    if _is_as_before(job, settled) and not capacity_due(job, at_us):
        return job, ()
    job = _joined(job, at_us)
    job, released = _release(job, at_us)
    job = _without_old_cordons(job)
    if job.phase is Phase.GATHERING and not job.restarts and _failures(job) >= FAILURES_MAX:
        return end(job, 1, _NONE_JOINS.format(job.spec.engine, job.capacity.words))
    job, retried = _try_again(job, at_us)
    job, acquired = _acquire(job, at_us)
    return job, (*released, *retried, *acquired)


def capacity_due(job: Job, at_us: int) -> bool:
    """Whether a deadline of the policy has come, or it has yet to begin."""
    if _is_off(job) or not job.capacity.wanted:
        return not _is_off(job)
    return any(_is_due(want, at_us) for want in job.capacity.wants.values()) or any(
        _is_late(job, name, at_us) for name in job.capacity.grants
    )


def _is_off(job: Job) -> bool:
    over = job.phase in (Phase.ENDING, Phase.ENDED) or job.stopping is not None
    return not job.spec.engine or over or "capacity" in job.broken_policies


def _is_as_before(job: Job, settled: Job) -> bool:
    same = all(getattr(settled, name) is getattr(job, name) for name in _FROM)
    return bool(job.capacity.wanted) and same


def _joined(job: Job, at_us: int) -> Job:
    """Note whose machine is there. One may be quicker than the word of its engine."""
    for want in job.capacity.wants.values():
        for name in want.names:
            if name in job.machines:
                job = with_grant(job, want, name, Grant(node="", granted_us=at_us))
    grants = job.capacity.grants
    there = {n: g for n, g in grants.items() if not g.joined and n in job.machines}
    if not there:
        return job
    grants = grants | {name: replace(grant, joined=True) for name, grant in there.items()}
    return _with(job, grants=grants)


def _without_old_cordons(job: Job) -> Job:
    """No machine comes again by a name that was given back."""
    old = [n for n in job.cordoned if n not in job.machines and is_returned(job, n)]
    for name in old:
        job = without_cordon(job, name)
    return job


# --- giving back ----------------------------------------------------------------------------------


def _release(job: Job, at_us: int) -> Decision:
    effects: list[Effect] = []
    for machine, why in [*_returns(job, at_us)]:
        job, more = give_back(job, machine, why, at_us)
        effects += more
    return job, tuple(effects)


def _returns(job: Job, at_us: int) -> Iterator[tuple[MachineId, Returned]]:
    """Machines that the engine may have back. None that has ranks, or is about to."""
    for name, grant in job.capacity.grants.items():
        if grant.returned is None and grant.joined and name not in job.machines:
            yield name, Returned.LOST
        elif _is_late(job, name, at_us):
            yield name, Returned.LATE
    idle = _idle(job)
    if job.change is not None and job.change.missing:
        yield from ((name, Returned.UNFIT) for name in idle if _is_unfit(job, name))
    elif job.change is None and not _is_open(job):
        gone = [name for name in idle if is_to_go(job, name)]
        yield from ((name, Returned.DRAINED) for name in gone)
        surplus = len(_present(job)) - job.spec.machines - job.spec.standbys
        rest = [name for name in idle if name not in job.cordoned]
        if surplus > 0 and job.phase is Phase.RUNNING:
            yield from ((name, Returned.UNWANTED) for name in rest[-surplus:])


def _idle(job: Job) -> list[MachineId]:
    """Machines of the engine's that do nothing for the job. Ranks wait for their first keeper at
    each step, so that is none of them."""
    change, held = job.change, job.capacity.grants
    busy = {keepers[0] for keepers in job.keepers.values()}
    if change is not None:
        busy |= {*change.joiners.values(), *change.hedges.values(), *change.leavers.values()}
    names = (machine.id for machine in spare(job) if machine.id not in busy)
    return [name for name in names if name in held and held[name].returned is None]


def _is_open(job: Job) -> bool:
    """Whether the first commit of the newest incident is to come: what a leaver keeps may be
    needed until then."""
    return bool(job.incidents) and job.incidents[-1].outcome is Outcome.OPEN


def give_back(job: Job, machine: MachineId, why: Returned, at_us: int) -> Decision:
    """The job without a claim on the machine; one that has joined takes no ranks any more. Whoever
    carries this out tells it to leave."""
    grant = job.capacity.grants[machine]
    grants = {**job.capacity.grants, machine: replace(grant, returned=why)}
    job = _with(job, grants=grants)
    released = (Release(machine, why),)
    if machine not in job.machines:
        return job, released
    return with_cordon(job, machine, Cordon(at_us, ASKED)), released


def is_returned(job: Job, machine: MachineId) -> bool:
    """Whether the machine of this name was given back: the next one has another."""
    grant = job.capacity.grants.get(machine)
    return grant is not None and grant.returned is not None


def is_to_go(job: Job, machine: MachineId) -> bool:
    """Whether the machine is to be given up as soon as it has no ranks."""
    cordon = job.cordoned.get(machine)
    return cordon is not None and bool(cordon.until_us or cordon.drained or cordon.failing)


def _is_late(job: Job, machine: MachineId, at_us: int) -> bool:
    grant = job.capacity.grants[machine]
    waits = not grant.joined and grant.returned is None and machine not in job.machines
    return waits and at_us >= grant.granted_us + JOIN_US


def _is_unfit(job: Job, name: MachineId) -> bool:
    machine = job.machines[name]
    return machine.state is MachineState.COLD or bool(machine.suspect or other_torch(job, machine))


# --- asking ---------------------------------------------------------------------------------------


def _try_again(job: Job, at_us: int) -> Decision:
    """Wants whose time has come: denied ones, and those that keep off nodes that may be well."""
    effects: list[Effect] = []
    for want in job.capacity.wants.values():
        if _is_due(want, at_us):
            avoid = () if _avoids_long(want, at_us) else want.avoid
            want = replace(want, denied="", retry_us=0, avoid=avoid, tries=want.tries + 1)
            job = with_want(job, want)
            effects.append(_order(want))
    return job, tuple(effects)


def _is_due(want: Want, at_us: int) -> bool:
    denied = bool(want.denied) and at_us >= want.retry_us
    return denied or (not want.denied and _avoids_long(want, at_us))


def _avoids_long(want: Want, at_us: int) -> bool:
    return bool(want.avoid) and at_us >= want.since_us + AVOID_US


def _acquire(job: Job, at_us: int) -> Decision:
    """As many as are lacking; fewer than was asked for, where machines have come back."""
    missing = max(_missing(job) - len(_able(job)), 0)
    here, all_there = len(_present(job)), job.spec.machines + job.spec.standbys
    lacking = max(all_there - here, missing) - job.capacity.to_come
    if lacking < 0:
        return _want_fewer(job, -lacking), ()
    if not lacking:
        return job, ()
    if not job.capacity.wanted:
        job, first = _ask(job, min(lacking, job.spec.machines), Need.START, at_us, standby=False)
        lacking -= min(lacking, job.spec.machines)
        if not lacking:
            return job, first
        job, rest = _ask(job, lacking, Need.START, at_us, standby=True)
        return job, first + rest
    starts = job.phase in (Phase.GATHERING, Phase.STARTING)
    need = Need.START if starts else Need.SLOT if missing else Need.STANDBY
    return _ask(job, lacking, need, at_us, standby=True)


def _missing(job: Job) -> int:
    return len(job.change.missing) if job.change is not None else 0


def _able(job: Job) -> list[MachineId]:
    """Machines that will take a slot as soon as they are up."""
    idle = _idle(job) if _missing(job) else []
    return [name for name in idle if not is_to_go(job, name) and not _is_unfit(job, name)]


def _ask(job: Job, count: int, need: Need, at_us: int, *, standby: bool) -> Decision:
    known = job.capacity
    names: list[MachineId] = []
    named = known.named
    while len(names) < count:
        named += 1
        name = MachineId(f"m{named}")
        if name not in job.machines and name not in known.grants:
            names.append(name)
    failures = _failures(job)
    retry_us = at_us + min(FAILED_US << failures, FAILED_US_MAX) if failures else 0
    want = Want(
        number=known.wanted + 1,
        names=tuple(names),
        need=need,
        standby=standby,
        since_us=at_us,
        deadline_us=job.change.until_us if job.change is not None and job.change.missing else 0,
        like=_like(job),
        avoid=_avoided(job, at_us),
        denied=Denial.FAILED if failures else "",
        retry_us=retry_us,
        tries=0 if failures else 1,
    )
    job = _with(job, wanted=want.number, named=named)
    return with_want(job, want), () if failures else (_order(want),)


def _failures(job: Job) -> int:
    """Machines in a row that were granted and never joined, the newest ones."""
    failures = 0
    for grant in sorted(job.capacity.grants.values(), key=lambda one: -one.granted_us):
        if grant.joined:
            break
        failures += grant.returned in (Returned.LOST, Returned.LATE)
    return failures


def _order(want: Want) -> Acquire:
    return Acquire(want.number, len(want.names), want.like, want.deadline_us, want.need)


def _want_fewer(job: Job, count: int) -> Job:
    """The newest wants go first. What an engine grants meanwhile goes back."""
    for want in sorted(job.capacity.wants.values(), key=lambda one: -one.number):
        left = want.names[: max(len(want.names) - count, 0)]
        count -= len(want.names) - len(left)
        job = with_want(job, replace(want, names=left))
    return job


def _present(job: Job) -> list[MachineId]:
    """Machines that the job can count on."""
    returned = {n for n, grant in job.capacity.grants.items() if grant.returned is not None}
    return [name for name in job.machines if name not in returned and not is_to_go(job, name)]


def _like(job: Job) -> str:
    """The machine whose ranks wait, if any do."""
    change = job.change
    return job.seats[min(change.missing)] if change is not None and change.missing else ""


def _avoided(job: Job, at_us: int) -> tuple[str, ...]:
    bad = (Returned.LOST, Returned.LATE)
    nodes = {
        grant.node
        for grant in job.capacity.grants.values()
        if grant.returned in bad and at_us < grant.granted_us + KEPT_US and grant.node
    }
    held = {g.node for g in job.capacity.grants.values() if g.returned is None}
    return tuple(sorted(nodes - held))


def with_grant(job: Job, want: Want | None, machine: MachineId, grant: Grant) -> Job:
    """The job with a machine of the engine's, which is wanted no more."""
    known = job.capacity.wants.get(want.number) if want is not None else None
    if known is not None:
        names = tuple(name for name in known.names if name != machine)
        job = with_want(job, replace(known, names=names))
    return _with(job, grants={**job.capacity.grants, machine: grant})


def with_want(job: Job, want: Want) -> Job:
    """The job with this want; without it, if all of it was granted."""
    rest = {number: one for number, one in job.capacity.wants.items() if number != want.number}
    return _with(job, wants=rest | ({want.number: want} if want.names else {}))


def _with(job: Job, **changes: object) -> Job:
    capacity: Capacity = replace(job.capacity, **changes)  # type: ignore[arg-type]
    return replace(job, capacity=capacity)
