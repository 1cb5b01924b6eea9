# SPDX-License-Identifier: Apache-2.0
"""Waits of a job: for what, since when and until when. Pure.

Each wait has an end: a fact that comes, or a deadline. Where nothing is known of a deadline, the
wait ends with what is waited for, or with the machine that it is on.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainmover.controller.change.buddies import holding
from trainmover.controller.change.seats import is_parked, joining, survivors
from trainmover.controller.keep.checkpoints import unwritten_ranks, writer_limit_us
from trainmover.controller.listed import some_of
from trainmover.controller.state import Change, Job, Kind, Phase, Stage
from trainmover.ids import MachineId, Rank, Slot
from trainmover.protocol.deadlines import LEASE_MORE_S
from trainmover.server.ranks import ranks_named
from trainmover.server.view.engine import Queued, engine_waits

NAMED_MAX = 6
_TRAINS = (Stage.BIND, Stage.PREPARE)
"""Stages of a move in which steps are committed."""


@dataclass(frozen=True)
class Wait:
    """Wait of a job for one thing.

    what      in words
    machines  that have to say it; ranks: that have to
    since_us, until_us  job time; until_us 0: there is no deadline of its own
    stands    whether no step is committed meanwhile
    """

    what: str
    machines: tuple[MachineId, ...] = ()
    ranks: tuple[Rank, ...] = ()
    since_us: int = 0
    until_us: int = 0
    stands: bool = True


def waiting_json(
    job: Job,
    awaited: Collection[MachineId],
    why: str,
    still_us: int,
    now_us: int,
    queue: Mapping[MachineId, Queued] | None = None,
) -> list[dict[str, Any]]:
    """Return what the job waits for, the most important first.

    awaited   machines that the job stands still for and does not give up; why: not
    still_us  for how long no step was committed
    queue     where machines stand that an engine is to start
    """
    waits = [*_waits(job, sorted(awaited), why, now_us - still_us)]
    if job.phase is not Phase.ENDED:
        waits += [
            Wait(text, names, (), since_us, stands=stands)
            for text, names, since_us, stands in engine_waits(job, queue or {})
        ]
    return [_json(one, now_us) for one in waits]


def stop_text(waiting: list[dict[str, Any]]) -> str:
    """Return what commits stand still for, of what `waiting_json` returned; "" if for nothing."""
    return next((f"waiting for {one['what']}" for one in waiting if one["stands"]), "")


def _json(one: Wait, now_us: int) -> dict[str, Any]:
    return {
        "what": one.what,
        "machines": list(one.machines),
        "ranks": list(one.ranks),
        "since_us": one.since_us,
        "until_us": one.until_us,
        "stands": one.stands,
        "since_s": max(0, now_us - one.since_us) / 1e6 if one.since_us else None,
        "left_s": max(0, one.until_us - now_us) / 1e6 if one.until_us else None,
    }


def _waits(job: Job, awaited: list[MachineId], why: str, since_us: int) -> Iterator[Wait]:
    if job.phase is Phase.ENDED:
        return
    if job.phase is Phase.GATHERING:
        yield _gathers(job)
    if awaited:
        until_us = since_us + round((job.spec.patience_s + LEASE_MORE_S) * 1e6)
        text = f"{some_of(awaited, NAMED_MAX)} to return" + (f": {why}" if why else "")
        yield Wait(text, tuple(awaited), _ranks_of(job, awaited), since_us, until_us)
    change = job.change
    if change is not None and change.missing:
        ranks = tuple(rank for slot in sorted(change.missing) for rank in job.spec.ranks(slot))
        count = len(change.missing)
        text = f"{count} machine{'s' * (count > 1)} to join, for {ranks_named(ranks)}"
        yield Wait(text, (), ranks, _begun_us(job, change), change.until_us)
    elif change is not None:
        yield from _of_change(job, change)
    writing = job.writing
    if writing is not None and (late := unwritten_ranks(job, writing)):
        text = f"{ranks_named(late)} to write the checkpoint of step {writing.step}"
        until_us = writing.since_us + writer_limit_us(job)
        yield Wait(text, _seats(job, late), tuple(late), writing.since_us, until_us, stands=False)
    if job.stopping is not None:
        yield Wait("the last checkpoint", until_us=job.stopping.until_us, stands=False)


def _gathers(job: Job) -> Wait:
    there = sum(bool(job.spec.engine) or not one.standby for one in job.machines.values())
    text = f"machines to join: {there} of {job.spec.machines} are there"
    return Wait(text, since_us=job.begun_us or 0)


def _of_change(job: Job, change: Change) -> Iterator[Wait]:
    """Yield what the stage under way still lacks."""
    since_us = _begun_us(job, change)
    for text, machines, ranks in _lacking(job, change):
        if machines or ranks:
            trains = change.kind is Kind.MOVE and change.stage in _TRAINS
            yield Wait(text, tuple(machines), tuple(ranks), since_us, stands=not trains)


def _lacking(
    job: Job, change: Change
) -> Iterator[tuple[str, Collection[MachineId], Collection[Rank]]]:
    everybody = [Rank(rank) for rank in range(job.spec.world_size)]
    match change.stage:
        case Stage.PREPARE:
            yield _lacks(job, everybody, change.prepared, "to prepare their groups")
        case Stage.PAUSE:
            yield _lacks(job, everybody, change.at_boundary, "to pause")
        case Stage.DRAIN:
            stay = survivors(job, change)
            yield _lacks(job, stay, change.positions, "to say where they stand")
            asked = holding(job) & job.machines.keys()
            names = sorted(asked - change.vaults.keys())
            yield f"{some_of(names, NAMED_MAX)} to say which records it keeps", names, ()
        case Stage.BOUNDARY:
            stay = survivors(job, change)
            yield _lacks(job, stay, change.at_boundary, "to come to their boundary")
        case Stage.SWITCH:
            ranks = [*survivors(job, change), *joining(job, change)]
            yield _lacks(job, ranks, change.switched, "to exchange their groups")
        case _:
            pass
    if change.stage in (Stage.BIND, Stage.DRAIN, Stage.BOUNDARY):
        bound = {*change.joiners.values(), *change.hedges.values()}
        names = sorted(name for name in bound if not is_parked(job, name))
        how = "a" if change.kind is Kind.MOVE else "the lost"
        yield f"{some_of(names, NAMED_MAX)} to run the script as {how} machine's ranks", names, ()


def _lacks(
    job: Job, ranks: Iterable[Rank], said: Collection[Rank], what: str
) -> tuple[str, Collection[MachineId], Collection[Rank]]:
    late = sorted(rank for rank in ranks if rank not in said)
    return f"{ranks_named(late)} {what}", _seats(job, late), late


def _begun_us(job: Job, change: Change) -> int:
    marks = next((one.marks for one in job.incidents if one.number == change.incident), {})
    return max(marks.values(), default=0)


def _ranks_of(job: Job, machines: Collection[MachineId]) -> tuple[Rank, ...]:
    slots = (Slot(slot) for slot, name in enumerate(job.seats) if name in machines)
    return tuple(rank for slot in slots for rank in job.spec.ranks(slot))


def _seats(job: Job, ranks: Collection[Rank]) -> tuple[MachineId, ...]:
    return tuple(dict.fromkeys(job.seats[rank // job.spec.nproc] for rank in ranks))
