# SPDX-License-Identifier: Apache-2.0
"""A rank becomes a member of the next epoch: it takes its state, if it joins, and connects."""

from functools import partial
from typing import TYPE_CHECKING

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol import messages as m
from trainmover.protocol.messages import Row
from trainmover.rank.standing import NONE
from trainmover.simulator.happenings import Placed, Violation
from trainmover.simulator.ranks import members, snapshots
from trainmover.simulator.ranks.bits import Bits
from trainmover.simulator.ranks.snapshots import Snapshot, file_key

if TYPE_CHECKING:
    from trainmover.simulator.ranks.workers import Worker

TRIES_MAX = 60
AGAIN_US = 50_000
"""Whoever does not reach what it needs tries for 3 s, then says that a link broke."""


def await_order(worker: "Worker", done: Epoch = NONE) -> None:
    """A joiner stands in the sandbox, or has followed an order in vain."""
    standing, bound_for = worker.standing, worker.bound_for
    worker.wait(lambda: standing.next_to_join(bound_for, done), partial(begin, worker))


def begin(worker: "Worker", order: m.Switch) -> None:
    """Take part; the end is `Switched`."""
    worker.order = order
    snapshots.changed(worker, order)
    worker.box.follow(order)
    worker.later(worker.world.between(2_000, 40_000), _exchange, worker, order, worker.store, 0)


def _exchange(worker: "Worker", order: m.Switch, store: str, tries: int) -> None:
    if worker.stuck:
        return
    in_vain = store != worker.world.store and not order.closing  # A dead store: nobody is met.
    if in_vain or worker.standing.ordered > order.epoch:
        _await_next(worker, order)
        return
    joins = not worker.live
    if not _meets_all(worker) or not (_has_state(worker, order) if joins else True):
        _again(worker, order, store, tries)
        return
    if joins:
        worker.standing.become(order.committed)
        _certify(worker, order)
    rows = worker.ledger.in_doubt
    worker.box.keep(worker, Step(order.committed + 1), order.epoch, rows)
    snapshots.follow(worker, order)
    worker.standing.connected(order.epoch)
    worker.say(m.Switched(rank=worker.rank, epoch=order.epoch))
    members.await_go(worker, order.epoch)


def _await_next(worker: "Worker", order: m.Switch) -> None:
    """Nothing comes of this one."""
    worker.order = None
    if worker.live:
        members.await_go(worker, order.epoch)
    else:
        await_order(worker, order.epoch)


def _again(worker: "Worker", order: m.Switch, store: str, tries: int) -> None:
    if worker.order is not order:
        _await_next(worker, order)  # It has said why it does not begin.
        return
    if tries < TRIES_MAX:
        worker.later(AGAIN_US, _exchange, worker, order, store, tries + 1)
        return
    lost = order.back and _meets_all(worker)
    fact = m.Interrupted(
        rank=worker.rank,
        epoch=order.epoch,
        reason="what it needs is out of reach",
        unusable=order.committed if lost else Step(0),
    )
    worker.say(fact)
    _await_next(worker, order)


def _meets_all(worker: "Worker") -> bool:
    """Whether its machine reaches those that it has to connect to: a joiner all others, who stays
    the joiners, for links between two that stay are kept."""
    world = worker.world
    if not world.network.cuts:
        return True
    stays = worker.live
    others = {w.box.name for w in world.workers() if w.parked or (w.live and not stays)}
    return all(world.network.reach(worker.box.name, other) for other in others)


def _has_state(worker: "Worker", order: m.Switch) -> bool:
    return _from_snapshot(worker, order) if order.back else _from_sources(worker, order)


def _from_sources(worker: "Worker", order: m.Switch) -> bool:
    """From the first source that is there, if all that are there agree, and the record from a
    vault; a leaver gives both, and its record nobody else has. False: none is."""
    named = order.sources[worker.rank]
    moves = named[0].rank == worker.rank
    rows = [] if moves else _recorded(worker, order)
    if rows is None:
        return False
    there = _sources_there(worker, named[:1] if moves else named)
    if not there:
        return False
    holders = {other.rank: str(other.holds) for other in there}
    if len(set(holders.values())) > 1:
        worker.order = None
        worker.say(m.Unproven(rank=worker.rank, epoch=order.epoch, holders=holders))
        return False
    if _lacks(worker):
        worker.order = None
        worker.say(m.Unproven(rank=worker.rank, epoch=order.epoch, lacks="what a step left"))
        return False
    first = there[0]
    _place(worker, order, first.holds, first.ledger.in_doubt if moves else rows, first.rank)
    return True


def _lacks(worker: "Worker") -> bool:
    world = worker.world
    return bool(world.knobs.lacks) and world.random.random() < world.knobs.lacks


def _sources_there(worker: "Worker", named: list[m.Source]) -> list["Worker"]:
    there = []
    for source in named:
        other = worker.world.process_at(source.address)
        if other is None or not other.box.answers(worker.box) or other.stopped:
            continue
        if other.rank != source.rank:
            raise Violation(f"{worker} is to take its state from {other} as rank {source.rank}")
        there.append(other)
    return there


def _recorded(worker: "Worker", order: m.Switch) -> list[Row] | None:
    """The rows that the record brings; None: it cannot be had."""
    vaults = order.records.get(worker.rank, [])
    if not vaults:
        raise Violation(f"{worker} is to join without a record")
    needed = Step(order.committed + 1)
    for box in map(worker.world.vault_at, vaults):
        if box is not None and box.answers(worker.box):
            found = box.vault.get(worker.rank, {})
            if needed in found:
                return found[needed]
    return None


def _from_snapshot(worker: "Worker", order: m.Switch) -> bool:
    """Its own snapshot, one from a vault, or a file; one of them must be there, unless its machine
    has died since the order."""
    step = order.committed
    if worker.on_way not in (-1, step):
        raise Violation(f"{worker} has gone to step {worker.on_way} and cannot go back to {step}")
    snapshot = _snapshot_of(worker, order)
    if snapshot is None:
        return False
    _place(worker, order, snapshot.holds, snapshot.rows, worker.rank)
    return True


def _snapshot_of(worker: "Worker", order: m.Switch) -> Snapshot | None:
    world, step, rank = worker.world, order.committed, worker.rank
    if rank in order.files:
        key = file_key(step, order.files[rank][0])
        return None if key in world.rotten else world.files[key]
    if (rank, step) in world.spoilt:
        return None
    for source in order.sources.get(rank, []):
        other = world.process_at(source.address)
        if other is not None and other.box.answers(worker.box):
            found = other.snapshots.of(rank, step)
            if found is not None:
                return found
    for name in order.records.get(rank, []):
        box = world.vault_at(name)
        if box is not None and box.answers(worker.box) and step in box.snapshots.get(rank, {}):
            return box.snapshots[rank][step]
    return None


def _place(worker: "Worker", order: m.Switch, holds: Bits, rows: list[Row], source: Rank) -> None:
    worker.holds = holds
    worker.on_way, worker.given_by = order.committed, source
    worker.ledger.inherit(((row, row) for row in rows), order.committed)
    worker.world.tell(Placed(worker, order.committed, holds, order.back, source))


def _certify(worker: "Worker", order: m.Switch) -> None:
    corrupt = (
        worker.world.knobs.corrupts and worker.world.random.random() < worker.world.knobs.corrupts
    )
    certificate = m.Certificate(
        rank=worker.rank,
        source_rank=worker.given_by,
        step=order.committed,
        epoch=order.epoch,
        source_digest="d",
        joiner_digest="e" if corrupt else "d",
        trace="t",
        position="",
        bytes=1,
        state_ms=1,
    )
    worker.say(m.Loaded(rank=worker.rank, epoch=order.epoch, certificate=certificate))
