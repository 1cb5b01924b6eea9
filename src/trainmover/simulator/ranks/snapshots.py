# SPDX-License-Identifier: Apache-2.0
"""What a process keeps of its rank's state, and gives to the vaults of other machines.

What is due, kept, given and dropped is decided by `rank.cuts`, as in the worker room; here is what
takes time, and what vaults have.
"""

from typing import TYPE_CHECKING, NamedTuple

from trainmover.ids import Rank, Step
from trainmover.protocol import messages as m
from trainmover.protocol.messages import Row
from trainmover.rank.cuts import Put
from trainmover.simulator.ranks.bits import Bits

if TYPE_CHECKING:
    from trainmover.simulator.ranks.workers import Worker

GIVE_US, ACKNOWLEDGE_US = (500, 20_000), (100, 2_000)
"""To give a vault one more copy, and until it has said so."""
AGAIN_US = 500_000
COST_US, STEP_US = 1, 20
SPOILS_EVERY, SPOILS_AMONG = 12, 4


class Snapshot(NamedTuple):
    """A rank's state after a step, and the rows that travel with it."""

    rank: Rank
    step: Step
    holds: Bits
    rows: list[Row]


def file_key(step: Step, path: str) -> str:
    """By which the world knows a file of a checkpoint."""
    return f"{step}/{path.rpartition('/')[2]}"


def keep_snapshots(worker: "Worker", order: m.KeepSnapshots) -> None:
    worker.snapshots.keep(order.every, now=order.now)


def cut_complete(worker: "Worker", order: m.CutComplete) -> None:
    worker.snapshots.completed(order.step)


def changed(worker: "Worker", order: m.Switch) -> None:
    """Members change."""
    worker.snapshots.changed(order.snapshot_every)
    if order.back:
        worker.snapshots.back_to(order.committed)


def follow(worker: "Worker", order: m.RunRank | m.Switch) -> None:
    """The rank has a buddy, or another one, who is to have what is complete."""
    rank, vaults = worker.rank, order.buddies
    further = order.further.get(rank, "")
    put = worker.snapshots.follow(rank, vaults.get(rank, ""), worker.epoch, further)
    if put is not None:
        _queue(worker, put)


def give(worker: "Worker", order: m.GiveSnapshots) -> None:
    """What only this process has goes to a vault: it may be good for one run only."""
    for rank, vault in order.vaults.items():
        if rank % worker.world.spec.nproc != worker.local:
            continue
        put = worker.snapshots.give(rank, order.step, vault, order.epoch)
        if isinstance(put, Put):
            _queue(worker, put)
        else:
            worker.say(put)


def take(worker: "Worker", step: Step) -> None:
    """At the boundary that all have agreed upon."""
    snapshot = Snapshot(worker.rank, step, worker.holds, worker.ledger.in_doubt)
    vault = worker.box.buddies.get(worker.rank, "")
    put = worker.snapshots.took(
        snapshot, epoch=worker.epoch, vault=vault, cost_us=COST_US, step_us=STEP_US
    )
    if _is_spoiled(worker.rank, step):
        worker.snapshots.spoiled(snapshot)
    else:
        _queue(worker, put)


def _is_spoiled(rank: Rank, step: Step) -> bool:
    """Whether it is written to while it is copied, and is none: now and then that of one rank."""
    now_and_then, whose = divmod(step, SPOILS_EVERY)
    return whose == 0 and rank == now_and_then % SPOILS_AMONG


# --- the thread that gives them to vaults -------------------------------------------------------


def _queue(worker: "Worker", put: Put[Snapshot]) -> None:
    """One after the other; it outlives the run of the script."""
    worker.puts.append(put)
    if len(worker.puts) == 1:
        _begin(worker)


def _begin(worker: "Worker") -> None:
    worker.beside(worker.world.between(*GIVE_US), _give, worker)


def _next(worker: "Worker") -> None:
    worker.puts.popleft()
    if worker.puts:
        _begin(worker)


def _give(worker: "Worker") -> None:
    put = worker.puts[0]
    if not put.vault:
        worker.say(put.said(1))
        _next(worker)
        return
    if not worker.snapshots.has(put.snapshot):
        _next(worker)
        return
    box = worker.world.vault_at(put.further or put.vault)
    if box is None or not box.answers(worker.box):
        if len(worker.puts) > 1:
            _next(worker)
        else:
            worker.beside(AGAIN_US, _give, worker)
        return
    refused = "" if box.has_room else f"The vault of {box.name} cannot keep a snapshot"
    if not refused:
        held = box.snapshots.get(put.snapshot.rank, {})
        box.snapshots[put.snapshot.rank] = {**held, put.snapshot.step: put.snapshot}
    worker.beside(worker.world.between(*ACKNOWLEDGE_US), _given, worker, refused)


def _given(worker: "Worker", refused: str) -> None:
    """It was acknowledged."""
    fact, more = worker.snapshots.given(worker.puts[0], refused, 1)
    if fact is not None:
        worker.say(fact)
    if more is not None:
        worker.puts.append(more)
    _next(worker)


# --- checkpoints --------------------------------------------------------------------------------


def write(worker: "Worker", order: m.WriteCheckpoint) -> None:
    """Its part of a checkpoint, and what it is to write for ranks that have no process any more."""
    if not any(one.rank == worker.rank for one in order.foreign):
        _write(worker, order, worker.rank, worker.snapshots.of(worker.rank, order.step))
    for one in order.foreign:
        if one.writer == worker.rank:
            took_us = worker.world.between(*GIVE_US)
            worker.later(took_us, _write_foreign, worker, order, one)


def _write_foreign(worker: "Worker", order: m.WriteCheckpoint, one: m.Foreign) -> None:
    _write(worker, order, one.rank, _found(worker, one, order.step))


def _found(worker: "Worker", one: m.Foreign, step: Step) -> Snapshot | None:
    """The snapshot of another rank, from who is in reach and has it still."""
    for address in one.vaults:
        box = worker.world.vault_at(address)
        its = box.snapshots.get(one.rank, {}) if box is not None else {}
        if box is not None and box.answers(worker.box) and step in its:
            return its[step]
    for address in one.processes:
        process = worker.world.process_at(address)
        if process is not None and process.box.answers(worker.box) and not process.stopped:
            return process.snapshots.of(one.rank, step)
    return None


def _write(worker: "Worker", order: m.WriteCheckpoint, rank: Rank, its: Snapshot | None) -> None:
    """A full disk has no room for it; a writer that hangs says nothing of this one."""
    if worker.rank in worker.world.hung_writers:
        worker.world.hung_writers.remove(worker.rank)
        return
    parts: list[m.Written] = []
    if its is not None and not worker.world.disk_full:
        parts = [m.Written(f"{rank}.{order.epoch}", 1, "")]
        worker.world.files[f"{order.step}/{parts[0].file}"] = its
    refused = "" if parts else "No space left on device"
    worker.say(m.Wrote(rank=rank, epoch=order.epoch, step=order.step, state=parts, refused=refused))
