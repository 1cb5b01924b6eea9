# SPDX-License-Identifier: Apache-2.0
"""A rank stands still: whose fault it is, and what follows. Pure.

    Stands, WorkerState    suspects (`suspects.py`) -> EndWorker: its stack is taken, it is killed,
                           and the end of a process is what recoveries are for
    goes round for ever    while members change a rank does not come to its boundary: the same
    again on that machine  within ten minutes: the machine is given up
    before the first step  a process that is stopped: its machine is given up, others begin
    without a rank         a process that is stopped for ten seconds is no standby: it is ended too
    nobody is missing      all wait in the same call: machines probe each other, and after long the
                           step is retried in place, once (`probing.py`)
    wait in a circle       the job ends: each would wait for the other for ever

A step that is tried three times ends the job all the same (`failing.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from trainmover.controller.change.losses import give_up, in_words
from trainmover.controller.change.price import can_be_given_up, can_be_replaced
from trainmover.controller.effects import Decision, Effect, Send, end
from trainmover.controller.standstill.condemned import with_condemned
from trainmover.controller.standstill.contact import stands_in_contact, waited_us
from trainmover.controller.standstill.lateness import holds_all, late_leavers, late_ranks
from trainmover.controller.standstill.probing import all_stand, conclude
from trainmover.controller.standstill.stuck import Condemned, Disturbed, Standstill
from trainmover.controller.standstill.suspects import (
    OWN_BUSINESS,
    circle,
    nobody_is_missing,
    suspects,
)
from trainmover.controller.state import (
    Cause,
    Change,
    Job,
    Kind,
    MachineState,
    Phase,
    Stage,
    Trigger,
)
from trainmover.controller.values import replace
from trainmover.ids import MachineId, Rank
from trainmover.protocol.messages import EndWorker, Moves, Stands, WorkerState

AGAIN_US = 600_000_000
STOPPED_US = 1_000_000
"""A process that is stopped for so long is not waited for, whether or not others stand already."""
END_US = 2_000_000
"""Within which a process that is to end has ended."""
ALL_US = 10_000_000
ALL_TIMES = 10
"""So long, and so many deadlines, must all stand in one call: a slow network may be all it is."""
BEFORE_US = DEAF_US = SPARE_US = 10_000_000
SURELY = 2
"""So many deadlines must a rank stand that keeps a change waiting, if nobody is seen to wait."""
GATE = "private/gate"
"""The group of `worker/step/gate.py`, as ranks name it in what they count."""
_STOPPED = ("stopped", "traced")
_WITH_RANKS = (MachineState.ACTIVE, MachineState.LEAVING, MachineState.BOUND)
_MANNER = {
    "stopped": "its process is stopped",
    "traced": "its process is held by a debugger",
    "blocked": "its process is blocked in the kernel",
    "deaf": "its process executes no Python: one call holds the interpreter",
}


@dataclass(frozen=True)
class _Place:
    """A process, and the rank that it has or is to take."""

    machine: MachineId
    local_rank: int
    rank: Rank


def stands(job: Job, fact: Stands, at_us: int) -> Job:
    """A rank has said that it stands still; what it said of another epoch does not count."""
    if fact.epoch != job.epoch:
        return job
    known = {**job.hanging.stands, fact.rank: Standstill(fact, at_us - fact.still_ms * 1000)}
    return replace(job, hanging=replace(job.hanging, stands=known))


def moves(job: Job, fact: Moves) -> Job:
    """It goes on."""
    known = {rank: one for rank, one in job.hanging.stands.items() if rank != fact.rank}
    return replace(job, hanging=replace(job.hanging, stands=known))


def worker_state(job: Job, machine: MachineId, fact: WorkerState, at_us: int) -> Job:
    """A process is stopped, or goes on. It may not have said yet that it is up."""
    here = job.machines[machine]
    if fact.pid in here.gone or here.pids.get(fact.local_rank, fact.pid) != fact.pid:
        return job
    disturbed = {**job.hanging.disturbed}
    disturbed.pop((machine, fact.local_rank), None)
    if fact.state:
        since_us = at_us - fact.since_ms * 1000
        disturbed[machine, fact.local_rank] = Disturbed(fact.pid, fact.state, since_us)
    return replace(job, hanging=replace(job.hanging, disturbed=disturbed))


def judge(job: Job, at_us: int) -> Decision:
    """Condemn whoever keeps the others waiting, unless that is under way already."""
    hanging = job.hanging
    late = [_place_of(job, rank) for rank in late_ranks(job, at_us)]
    late += [_Place(*place) for place in late_leavers(job, at_us)]
    about = (hanging.stands, hanging.disturbed, hanging.condemned, hanging.probing, late)
    if not any(about):
        return job, ()
    job = _of_this_epoch(job)
    if not hanging.condemned.keys() <= job.away:
        return _give_up_overdue(job, at_us)
    if not job.spec.watch:
        return job, ()
    if job.phase in (Phase.GATHERING, Phase.STARTING):
        return _give_up_stopped(job, at_us)
    if job.phase not in (Phase.RUNNING, Phase.ENDING):
        return job, ()
    if found := _stopped_for_long(job, at_us):
        return _condemn(job, found, at_us)
    if late:
        return _condemn(job, late, at_us)
    if spare := _spares_stopped(job, at_us):
        return _condemn_all(job, spare)
    if job.change is None and (ranks := circle(_facts(_standing(job)))):
        return end(job, 1, _each_waits(job, ranks))
    if not _may_compare(job):
        return job, ()
    if hanging.probing is not None:
        job, to_go = conclude(job, at_us)
        if to_go is None or not can_be_given_up(job, to_go.machine):
            return job, ()
        cause = Cause(Trigger.STUCK, to_go.cause)
        return give_up(job, to_go.machine, cause, at_us, to_go.since_us)
    said = _standing(job)
    stands = _facts(said)
    blamed = suspects(
        stands,
        set() if holds_all(job) else {place.rank for place in _silent(job)},
        ranks=job.spec.world_size,
        waiting=_held_by_change(job, at_us),
    )
    if blamed:
        return _condemn(job, [_place_of(job, rank) for rank in blamed], at_us)
    if job.change is None and nobody_is_missing(stands, job.spec.world_size):
        long = all(_for_long(one, at_us) for one in said.values())
        return all_stand(job, list(said.values()), at_us, long=long)
    return job, ()


def _of_this_epoch(job: Job) -> Job:
    """Without what ranks said in an older one."""
    stands = {r: one for r, one in job.hanging.stands.items() if one.fact.epoch == job.epoch}
    return replace(job, hanging=replace(job.hanging, stands=stands))


def _give_up_overdue(job: Job, at_us: int) -> Decision:
    """A process cannot be killed, or an agent does not obey: the whole machine goes. Where no other
    can take its ranks, its disk may only hang for a while: it has its patience.
    """
    for machine, one in job.hanging.condemned.items():
        waited = waited_us(job, machine, one.judged_us, at_us)
        spared = waited >= END_US and can_be_replaced(job, machine)
        if spared or waited >= 1e6 * job.spec.patience_s:
            cause = Cause(Trigger.STUCK, f"{one.cause}; it did not end")
            return give_up(job, machine, cause, at_us, one.since_us)
    return job, ()


def _give_up_stopped(job: Job, at_us: int) -> Decision:
    """Before the job begins all are waited for, and nobody has gone on without the others."""
    for (machine, local_rank), one in job.hanging.disturbed.items():
        if one.state in _STOPPED and waited_us(job, machine, one.since_us, at_us) >= BEFORE_US:
            how = f"worker {local_rank} of {machine} did not begin: {_MANNER[one.state]}"
            return give_up(job, machine, Cause(Trigger.STUCK, how), at_us, one.since_us)
    return job, ()


def _may_compare(job: Job) -> bool:
    """First steps compile, last ones end, and at the switch ranks wait for the runtime."""
    switches = job.change is not None and job.change.stage is Stage.SWITCH
    return job.all_recorded and not job.finished and not switches


def _facts(stands: Mapping[Rank, Standstill]) -> dict[Rank, Stands]:
    return {rank: one.fact for rank, one in stands.items()}


def _standing(job: Job) -> dict[Rank, Standstill]:
    """While members change only who does not come to the boundary matters."""
    stands = stands_in_contact(job, job.hanging.stands)
    if not holds_all(job):
        return stands
    assert job.change is not None
    there = job.change.at_boundary
    return {
        rank: one
        for rank, one in stands.items()
        if one.fact.where in OWN_BUSINESS and rank not in there and _seated(job, rank)
    }


def _held_by_change(job: Job, at_us: int) -> set[Rank]:
    """Ranks that a change under way keeps waiting.

    Those that have said so; of others it is not known, since they may be in a collective, or as
    slow as the one that stands. If they were that slow they would stand themselves a little later.
    """
    if not holds_all(job):
        return set()
    change = job.change
    assert change is not None
    standing = _standing(job)
    surely = (
        at_us - one.since_us >= SURELY * 1000 * one.fact.deadline_ms for one in standing.values()
    )
    if all(surely):
        return {Rank(rank) for rank in range(job.spec.world_size)}
    here = change.positions if change.stage is Stage.DRAIN else change.at_boundary
    return {*here, *_parked(job, change)}


def _parked(job: Job, change: Change) -> list[Rank]:
    """Ranks whose new process is ready; in a move the old one is what all wait for."""
    joiners = change.joiners.items() if change.kind is Kind.RECOVERY else ()
    return [job.spec.ranks(slot)[local] for slot, name in joiners for local in _ready(job, name)]


def _ready(job: Job, machine: MachineId) -> frozenset[int]:
    joiner = job.machines[machine]
    return joiner.said if joiner.state is MachineState.BOUND else frozenset()


def _silent(job: Job) -> dict[_Place, Disturbed]:
    """Processes that have a rank, or are to take one, and execute nothing. Of those that are
    through with the script only at the end, when all are to leave."""
    done = job.exited if job.phase is Phase.ENDING else job.finished
    places = {
        _Place(machine, local_rank, rank): one
        for (machine, local_rank), one in job.hanging.disturbed.items()
        if machine not in job.away and (rank := _rank_of(job, machine, local_rank)) is not None
    }
    return {place: one for place, one in places.items() if place.rank not in done}


def _rank_of(job: Job, machine: MachineId, local_rank: int) -> Rank | None:
    joiners = job.change.joiners.items() if job.change is not None else ()
    takes = [job.spec.ranks(slot)[local_rank] for slot, name in joiners if name == machine]
    if takes:  # Whatever it is about: the job waits for it.
        return takes[0]
    has = job.machines[machine].state in _WITH_RANKS
    return job.rank_of(machine, local_rank) if has else None


def _place_of(job: Job, rank: Rank) -> _Place:
    slot, local_rank = divmod(rank, job.spec.nproc)
    return _Place(job.seats[slot], local_rank, rank)


def _stopped_for_long(job: Job, at_us: int) -> list[_Place]:
    """These are known without a comparison, at any time. Who only does not answer gets longer, and
    only a change that waits for all waits for him: else it is for the others to stand first."""
    return [
        place
        for place, one in _silent(job).items()
        if waited_us(job, place.machine, one.since_us, at_us)
        >= (STOPPED_US if one.state in _STOPPED else DEAF_US)
        and (one.state in _STOPPED or holds_all(job))
    ]


def _for_long(one: Standstill, at_us: int) -> bool:
    return at_us - one.since_us >= max(ALL_US, ALL_TIMES * 1000 * one.fact.deadline_ms)


def _seated(job: Job, rank: Rank) -> bool:
    """Whether the rank has a machine with its processes up."""
    machine = job.machines.get(job.seats[rank // job.spec.nproc])
    return machine is not None and machine.state in _WITH_RANKS


def _spares_stopped(job: Job, at_us: int) -> dict[MachineId, Condemned]:
    """Processes that nobody waits for yet, and that cannot do what they are kept for."""
    return {
        machine: Condemned(
            local_rank=local_rank,
            rank=None,
            pid=one.pid,
            cause=f"worker {local_rank} of {machine} has no rank, and {_MANNER[one.state]}",
            since_us=one.since_us,
            judged_us=at_us,
            give_up=_again(job, machine, at_us),
        )
        for (machine, local_rank), one in job.hanging.disturbed.items()
        if one.state in _STOPPED
        and waited_us(job, machine, one.since_us, at_us) >= SPARE_US
        and job.slot_of(machine) is None
        and _rank_of(job, machine, local_rank) is None
    }


def _condemn(job: Job, places: list[_Place], at_us: int) -> Decision:
    """With one worker all of its machine are replaced."""
    first = {place.machine: place for place in reversed(places)}
    return _condemn_all(
        job, {name: _condemned(job, place, at_us) for name, place in sorted(first.items())}
    )


def _condemn_all(job: Job, found: dict[MachineId, Condemned]) -> Decision:
    effects: list[Effect] = []
    for machine, one in found.items():
        job = with_condemned(job, machine, one)
        judged = {**job.hanging.judged, machine: one.judged_us}
        job = replace(job, hanging=replace(job.hanging, judged=judged))
        order = EndWorker(local_rank=one.local_rank, pid=one.pid, why=one.cause)
        effects.append(Send(machine, order))
    return job, tuple(effects)


def _again(job: Job, machine: MachineId, at_us: int) -> bool:
    """Whether a worker there was condemned lately."""
    judged_us = job.hanging.judged.get(machine)
    return judged_us is not None and at_us - judged_us < AGAIN_US


def _condemned(job: Job, place: _Place, at_us: int) -> Condemned:
    machine, rank = place.machine, place.rank
    said, silent = _standing(job).get(rank), _silent(job).get(place)
    cause, since_us = _late(job, place, at_us)
    if said is not None or silent is not None:
        cause, since_us = _still(job, place, said, silent, at_us)
    return Condemned(
        local_rank=place.local_rank,
        rank=rank,
        pid=job.machines[machine].pids[place.local_rank] if silent is None else silent.pid,
        cause=cause,
        since_us=since_us,
        judged_us=at_us,
        give_up=_again(job, machine, at_us),
    )


def _late(job: Job, place: _Place, at_us: int) -> tuple[str, int]:
    """Why a rank that moves is to end, and since when it is waited for."""
    since_us = job.change.since_us if job.change is not None else at_us
    text = (
        f"rank {place.rank} on {place.machine} did not leave its step for "
        f"{(at_us - since_us) / 1e6:.0f} s after that was interrupted: its script goes on"
    )
    return text, since_us


def _still(
    job: Job, place: _Place, said: Standstill | None, silent: Disturbed | None, at_us: int
) -> tuple[str, int]:
    """Why a rank that stands is to end, and since when it does.

    In which step a silent one is nobody has said; those that wait for it say in which they are.
    """
    since_us = min(one.since_us for one in (said, silent) if one is not None)
    how = _MANNER.get(silent.state, silent.state) if silent is not None else ""
    if said is not None and silent is None:
        how = _whereabouts(said.fact)
    steps = [one.fact.step for one in _standing(job).values()]
    step = said.fact.step if said is not None else max(steps, default=None)
    where = "after its last step " if place.rank in job.finished else ""
    if not where and step is not None:
        where = f"in step {step} "
    still_s = (at_us - since_us) / 1e6
    text = f"rank {place.rank} on {place.machine} stood still {where}for {still_s:.1f} s: {how}"
    return text, since_us


def _each_waits(job: Job, ranks: list[Rank]) -> str:
    """Why the job ends, and what its script has to do."""
    stands = job.hanging.stands
    waits = ", ".join(
        f"rank {rank} in {stands[rank].fact.call}{_at(stands[rank].fact)} for rank {other}"
        for rank, other in zip(ranks, [*ranks[1:], ranks[0]], strict=True)
    )
    text = (
        f"Ranks {in_words([*map(str, ranks)])} wait for each other: {waits}.\n"
        "The job has ended: none of them can ever go on.\n"
        "Have all ranks make the same collectives in the same order."
    )
    if any(stands[rank].fact.group == GATE for rank in ranks):
        text += (
            " The gate is at the first optimizer.step() of a step, or at the end of a step that "
            "has none: all ranks meet there, so each must make as many steps as the others, and "
            "none may need another's update before its own."
        )
    return text


def _at(fact: Stands) -> str:
    return f" at {fact.place}" if fact.place else ""


def _whereabouts(fact: Stands) -> str:
    return ("its script" if fact.where == "script" else "fetching a batch") + _at(fact)
