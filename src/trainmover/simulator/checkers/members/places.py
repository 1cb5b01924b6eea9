# SPDX-License-Identifier: Apache-2.0
"""What an order says of others is where they are: who has a rank's state, its record, its snapshot.

sources   of a joiner: the leaver, if it gives its ranks up, and ranks that stay and have not parted
records   of steps: with machines of the job; of first steps: of ranks of one role, buddies first
back      every place that the cut has, of just the ranks that the machine is to have
peers     other machines, that joined last
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import Send
from trainmover.controller.state import Change, Job, Kind, Machine, Phase
from trainmover.ids import MachineId, Rank
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

PEERS = 3


class Places:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        job = moment.after
        for effect in moment.effects:
            if not isinstance(effect, Send) or effect.machine not in job.machines:
                continue
            here, order, change = job.machines[effect.machine], effect.order, job.change
            match order:
                case m.Switch() if change is not None and change.epoch == order.epoch:
                    _may_switch(job, change, here, order)
                case m.Prepare(early=early):
                    for rank, source in early.items():
                        _is_at(job, rank, source)
                case m.Bind() if change is None and job.phase is Phase.STARTING:
                    pass  # Its change was given up at once, for a start of all from nothing.
                case m.WarmUp(slot=slot) | m.Hold(slot=slot) | m.Bind(slot=slot):
                    _finds_records(job, [*job.spec.ranks(slot)], order.records)
                case m.Examine(peers=peers):
                    _are_peers(job, here, peers)
                case m.EndWorker(local_rank=local, pid=pid):
                    known = moment.before.machines.get(effect.machine, here).pids.get(local, pid)
                    if pid not in (known, here.pids.get(local, pid)):
                        raise Violation(f"{here.id} is to end {pid}, and has {here.pids}")


def _ranks(job: Job, change: Change, name: MachineId) -> set[Rank]:
    """That the machine has, or is to have."""
    slots = [slot for slot, joiner in change.joiners.items() if joiner == name]
    slots += [slot for slot in map(job.slot_of, [name]) if slot is not None]
    return {rank for slot in slots for rank in job.spec.ranks(slot)}


def _joining(job: Job, change: Change) -> set[Rank]:
    return {rank for slot in change.joiners for rank in job.spec.ranks(slot)}


def _vaults(job: Job) -> set[str]:
    return {one.vault for one in job.machines.values()}


def _is_at(job: Job, rank: Rank, source: m.Source) -> None:
    slot, local = divmod(source.rank, job.spec.nproc)
    address = job.machines[job.seats[slot]].workers.get(local)
    if address != source.address:
        raise Violation(f"rank {rank} is to be had from {source}, which is at {address}")


def _may_switch(job: Job, change: Change, here: Machine, order: m.Switch) -> None:
    mine = _ranks(job, change, here.id)
    if order.buddies.keys() - mine or order.further.keys() - mine:
        raise Violation(f"{here.id} has ranks {mine}, and is told of {order.buddies}")
    if order.closing != bool(job.finished):
        raise Violation(f"{[*job.finished]} are through, and {here.id} is told {order}")
    if order.back:
        _goes_back(job, change, mine, order)
        return
    joining = _joining(job, change)
    if set(order.sources) != joining or order.files:
        raise Violation(f"ranks {joining} join, and {here.id} is told of {order.sources}")
    apart = job.comparison.diverged
    if order.diverged != sorted(joining & apart):
        raise Violation(f"of {joining} have diverged {apart}; {here.id} is told {order.diverged}")
    for rank, sources in order.sources.items():
        _may_give(job, change, rank, sources)
    recorded = {rank for rank, sources in order.sources.items() if sources[0].rank != rank}
    if order.records.keys() != recorded:
        raise Violation(f"{recorded} need their records: {order.records}")
    for rank, vaults in order.records.items():
        if not vaults or not {*vaults} <= _vaults(job):
            raise Violation(f"the record of rank {rank} is said to be in {vaults}")


def _may_give(job: Job, change: Change, rank: Rank, sources: list[m.Source]) -> None:
    comparison = job.comparison
    moves = change.kind is Kind.MOVE
    for source in sources:
        _is_at(job, rank, source)
        if source.rank == rank:
            if not moves or source is not sources[0]:
                raise Violation(f"rank {rank} is to take its own state: {sources}")
            continue
        since = (
            comparison.step if rank in comparison.diverged else 0
        )  # A round has said who is right.
        parted = comparison.apart.get(source.rank, -1) >= since
        if source.rank in comparison.diverged or parted:
            raise Violation(f"rank {rank} is to take the state of {source}, which has parted")
        if source.rank in _joining(job, change):
            raise Violation(f"rank {rank} is to take the state of {source}, which joins too")
    if moves and sources[0].rank != rank and rank not in comparison.diverged:
        raise Violation(f"rank {rank} is moved, and its state is to come from {sources[0]}")


def _goes_back(job: Job, change: Change, mine: set[Rank], order: m.Switch) -> None:
    if change.checkpoint is not None:
        files = {
            rank: [change.checkpoint.path(part) for part in parts]
            for rank, parts in change.checkpoint.states.items()
            if rank in mine
        }
        if (order.files, order.sources, order.records) != (files, {}, {}):
            raise Violation(f"ranks {mine} are to be read from {files}: {order}")
        return
    cut = job.cut
    assert cut is not None
    kept = _vaults(job)
    for rank in mine:
        places = {where[rank] for where in (cut.vaults, cut.further) if where.get(rank) in kept}
        told = {vault for vault in order.records.get(rank, []) if vault}
        if not places <= told or not told <= kept:
            raise Violation(f"the snapshot of rank {rank} is in {places}, and it is told {told}")
        worker = cut.workers.get(rank)
        alive = {address for one in job.machines.values() for address in one.workers.values()}
        named = [source.address for source in order.sources.get(rank, [])]
        if named != [worker] * (worker in alive) or (not named and not told):
            raise Violation(f"the snapshot of rank {rank} is with {worker}, and it is told {named}")
    if (order.sources.keys() | order.records.keys()) - mine or order.files:
        raise Violation(f"ranks {mine} go back, and are told of others: {order}")


def _finds_records(job: Job, ranks: list[Rank], records: m.Records) -> None:
    if not {*ranks} <= records.keys():
        raise Violation(f"ranks {ranks} are to be run, and records are of {[*records]}")
    for rank, stored in records.items():
        said = job.recorded.get(rank)
        owners = [one.rank for one in stored]
        if said is None or owners[0] != rank or len({*owners}) < len(owners):
            raise Violation(f"rank {rank} is to run with the records of {owners}")
        others = [
            other
            for other, its in job.recorded.items()
            if (its.signature, its.trace) == (said.signature, said.trace)
            and other // job.spec.nproc != rank // job.spec.nproc
        ]
        if len(owners) != 1 + bool(others) or not {*owners[1:]} <= {*others}:
            raise Violation(f"rank {rank} is to run with {owners}; of its role are {others}")
        for one in stored:
            _is_kept(job, one)


def _is_kept(job: Job, one: m.Stored) -> None:
    """The buddies that were told come first; nobody is named twice, or is gone."""
    told = job.keepers.get(one.rank // job.spec.nproc, ())  # type: ignore[call-overload]
    buddies = [job.machines[name].vault for name in told if name in job.machines]
    first = one.vaults[: len(buddies)]
    if (
        first != buddies
        or len({*one.vaults}) < len(one.vaults)
        or not {*one.vaults} <= _vaults(job)
    ):
        raise Violation(f"{one}: its buddies are {buddies}")


def _are_peers(job: Job, here: Machine, peers: dict[MachineId, str]) -> None:
    known = {name: job.machines[name].vault for name in peers if name in job.machines}
    if here.id in peers or len(peers) > PEERS or known != peers:
        raise Violation(f"{here.id} is to send something to {peers}")
    others = [name for name in job.health.newest if name != here.id and name in job.machines]
    if {*others} - {*peers}:
        raise Violation(f"{here.id} is to send something to {peers}, joined last have {others}")
