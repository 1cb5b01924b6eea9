# SPDX-License-Identifier: Apache-2.0
"""Common part of moves and recoveries: groups are switched, and an epoch is put in force. Pure.

Joiners have run the script as the ranks they are to take, and are parked. Once every rank stands at
the boundary all exchange the members that change, and say so; then `Go`.
"""

from typing import Any

import msgspec

from trainmover.controller.change.backoff import move_went_well
from trainmover.controller.change.buddies import (
    further_keepers,
    keepers,
    told_buddies,
    vaults_of,
    with_keepers,
)
from trainmover.controller.change.incidents import in_new_epoch, incident, mark
from trainmover.controller.change.seats import (
    address_of,
    holders,
    joining,
    seats_after,
    survivors,
    too_few,
    with_machine,
)
from trainmover.controller.compare.comparison import gone_back
from trainmover.controller.compare.replicas import taken_over
from trainmover.controller.effects import Decision, Effect, Send
from trainmover.controller.facts import Facts, Ranks
from trainmover.controller.state import Change, Cut, Job, Kind, MachineState, Stage
from trainmover.controller.values import replace
from trainmover.ids import Epoch, MachineId, Rank, Slot, Step
from trainmover.protocol.messages import Go, KeepSnapshots, Leave, Source, Switch

SOURCES_MAX = 16
"""Ranks that give a joiner its state, however many hold it."""


def begin_back(job: Job, joiners: dict[Slot, MachineId], **where: Any) -> Job:
    """In a new epoch every rank joins; who was through with the script runs its last steps again.

    where: as fields of `Change`, to what they go back
    """
    change = job.change
    assert change is not None
    epoch = Epoch(job.epoch_last + 1)
    back = Change(
        kind=Kind.RECOVERY,
        epoch=epoch,
        stage=Stage.BOUNDARY,
        incident=change.incident,
        joiners=joiners,
        leavers=change.leavers,
        back=True,
        positions=change.positions,
        **where,
    )
    job = in_new_epoch(job, change.incident, epoch)
    return replace(
        job, epoch_last=epoch, change=back, snapped=Facts(), finished=Facts(), exited=Ranks()
    )


def send_switch(job: Job, sources: dict[Rank, list[Rank]]) -> Decision:
    """Phase 2: to everybody who is or becomes a member, and to leavers, who give their state.

    sources: joining rank to the ranks that hold its state, the one to begin with first
    """
    change = job.change
    assert change is not None
    assert change.committed is not None
    after = seats_after(job, change)
    vaults = {machine.id: machine.vault for machine in job.machines.values()}
    told = {rank: [vault] for rank, vault in told_buddies(job).items()}
    resume = Step(change.committed + 1)
    order = Switch(
        epoch=change.epoch,
        committed=change.committed,
        sources={
            rank: [
                Source(other, address_of(job, job.seats, other)) for other in holding[:SOURCES_MAX]
            ]
            for rank, holding in sources.items()
        },
        records={
            rank: holders(change, rank, resume, vaults) or told.get(rank, [])
            for rank, holding in sources.items()
            if rank != holding[0]
        },
        buddies={},
        closing=bool(job.finished),
        snapshot_every=job.snapshot_every,
        diverged=[rank for rank in sorted(sources) if rank in job.comparison.diverged],
    )
    on_way = change.on_way.union(change.joiners.values())
    job = replace(job, change=replace(change, stage=Stage.SWITCH, on_way=on_way))
    return _to_each(job, order, after)


def _to_each(job: Job, order: Switch, after: tuple[MachineId, ...]) -> Decision:
    """Return the order, with the buddies of the ranks that a machine has or gets, and no others:
    told of all ranks, all machines together would hear as much as the square of their number."""
    keeper = keepers(job, after)
    kept_by = vaults_of(job, keeper)
    one_more = further_keepers(job, after)
    further = vaults_of(job, one_more)
    slots: dict[MachineId, set[int]] = {}
    for seats in (after, job.seats):
        for slot, name in enumerate(seats):
            if name in job.machines:
                slots.setdefault(name, set()).add(slot)
    return with_keepers(job, keeper, one_more), tuple(
        Send(name, msgspec.structs.replace(order, **_of_ranks(job, order, kept_by, further, its)))
        for name, its in sorted(slots.items())
    )


def _of_ranks(
    job: Job,
    order: Switch,
    kept_by: dict[Rank, str],
    further: dict[Rank, str],
    slots: set[int],
) -> dict[str, dict[Rank, Any]]:
    """Fields of the order that are for one machine. To go back nobody needs another's snapshot."""
    ranks = [rank for slot in sorted(slots) for rank in job.spec.ranks(Slot(slot))]
    whole: dict[str, dict[Rank, Any]] = {"buddies": kept_by, "further": further}
    if order.back:
        whole |= {"sources": order.sources, "records": order.records, "files": order.files}
    return {
        field: {rank: its[rank] for rank in ranks if rank in its} for field, its in whole.items()
    }


def send_switch_back(job: Job, cut: Cut) -> Decision:
    """Phase 2 where every rank joins, with its snapshot of the cut."""
    change = job.change
    assert change is not None
    after = seats_after(job, change)
    order = Switch(
        epoch=change.epoch,
        committed=cut.step,
        sources={rank: [Source(rank, address)] for rank, address in cut.workers.items()},
        records={
            rank: [where[rank] for where in (cut.vaults, cut.further) if rank in where]
            for rank in cut.vaults.keys() | cut.further.keys()
        },
        buddies={},
        back=True,
        snapshot_every=job.snapshot_every,
        files=cut.files,
    )
    comparison = gone_back(job.comparison, cut.step)
    job = replace(job, change=replace(change, stage=Stage.SWITCH), comparison=comparison)
    return _to_each(job, order, after)


def go_when_switched(job: Job, at_us: int) -> Decision:
    """Every rank has exchanged its member: the new seats are in force, leavers leave."""
    change = job.change
    assert change is not None
    joiners = len(change.joiners) * job.spec.nproc
    if too_few(job, change, len(change.switched) - joiners):
        return job, ()
    if not {*survivors(job, change), *joining(job, change)} <= change.switched:
        return job, ()
    after = seats_after(job, change)
    go = Go(epoch=change.epoch)
    effects: list[Effect] = [Send(machine, go) for machine in after if machine in job.machines]
    for machine in change.joiners.values():
        job = with_machine(
            job, machine, state=MachineState.ACTIVE, said=frozenset(), crashes=0, attests={}
        )
    # Who joins holds no snapshot: let there be a cut. And one that is waited for may be lost.
    if (job.snapshot_every and change.joiners) or job.stopping is not None:
        order = KeepSnapshots(every=job.snapshot_every, now=True)
        effects += (Send(machine, order) for machine in after if machine in job.machines)
    for machine in change.leavers.values():
        if (
            machine in job.machines
            and job.machines[machine].state is MachineState.ACTIVE
            and machine not in after
        ):
            effects.append(Send(machine, Leave(epoch=change.epoch)))
            job = with_machine(job, machine, state=MachineState.LEAVING, said=frozenset())
    job = mark(job, change.incident, "switchover", at_us)
    exited = job.exited.without(joining(job, change))
    job = move_went_well(job, change.leavers.values())
    job = replace(
        job,
        seats=after,
        epoch=change.epoch,
        change=None,
        snapped=Facts(),
        exited=exited,
        keepers_before={},  # Each rank has put its record with its new keeper.
    )
    for certificate in incident(job, change.incident).certificates:
        job = taken_over(job, certificate)
    return job, tuple(effects)
