"""What a process keeps of its rank's state, and gives to the vaults of other machines."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from trainmover.ids import Rank, Step
from trainmover.protocol import messages as m
from trainmover.protocol.messages import Row
from trainmover.simulator.bits import Bits

if TYPE_CHECKING:
    from trainmover.simulator.workers import Worker

GIVE_US = (1_000, 40_000)
"""To give a vault one more copy."""


class Snapshot(NamedTuple):
    """A rank's state after a step, and the rows that travel with it."""

    rank: Rank
    holds: Bits
    rows: list[Row]


@dataclass
class Snapshots:
    """Of one process. every: committed steps from one to the next; 0: none is wanted. asked: one is
    wanted at the next gate; complete: step of the newest that all ranks have."""

    every: int = 0
    asked: bool = False
    complete: Step = Step(0)
    held: dict[Step, Snapshot] = field(default_factory=dict)

    def of(self, rank: Rank, step: Step) -> Snapshot | None:
        """What it has of this rank."""
        found = self.held.get(step)
        return found if found is not None and found.rank == rank else None

    @property
    def busy(self) -> bool:
        return any(step > self.complete for step in self.held)

    def wanted(self, rank: Rank, gate: Step) -> bool:
        """Whether to say so at the gate."""
        if self.busy:
            return False
        held = [at for at, its in self.held.items() if its.rank == rank]
        due = self.every and (not held or gate - max(held) >= self.every)
        return self.asked or bool(due)


def keep_snapshots(worker: "Worker", order: m.KeepSnapshots) -> None:
    worker.snapshots.every = order.every
    worker.snapshots.asked |= order.now


def cut_complete(worker: "Worker", order: m.CutComplete) -> None:
    its = worker.snapshots
    its.complete = order.step
    its.held = {at: one for at, one in its.held.items() if at >= order.step}


def changed(worker: "Worker", order: m.Switch) -> None:
    """Members change: what is not complete will never be; what is has to be with the new buddy."""
    its = worker.snapshots
    if order.back:
        its.complete = min(its.complete, order.committed)
    its.held = {at: one for at, one in its.held.items() if at <= its.complete}
    its.every = order.snapshot_every


def take(worker: "Worker") -> None:
    """At the boundary that all have agreed upon."""
    worker.snapshots.asked = False
    rows = worker.ledger.in_doubt
    worker.snapshots.held[worker.step] = Snapshot(worker.rank, worker.holds, rows)
    put(worker, worker.step)


def put(worker: "Worker", step: Step) -> None:
    """With the buddy, if that is there, and says so; for a checkpoint alone with nobody."""
    if not worker.snapshots.every and worker.world.spec.checkpoint:
        _said(worker, step, "")
    elif (vault := _given(worker, step, worker.box.buddies)) is not None:
        _said(worker, step, vault)
        if worker.rank in worker.box.further:
            worker.later(worker.world.between(*GIVE_US), _put_further, worker, step, vault)


def _put_further(worker: "Worker", step: Step, vault: str) -> None:
    further = _given(worker, step, worker.box.further)
    if further is not None:
        _said(worker, step, vault, further=further)


def _given(worker: "Worker", step: Step, vaults: dict[Rank, str]) -> str | None:
    """The vault that has it now; None: it is out of reach, or there is nothing to give any more."""
    snapshot = worker.snapshots.of(worker.rank, step)
    box = worker.world.vault_at(vaults.get(worker.rank, ""))
    if snapshot is None or box is None or not box.answers(worker.box):
        return None
    box.snapshots[worker.rank] = {**box.snapshots.get(worker.rank, {}), step: snapshot}
    return box.address


def _said(worker: "Worker", step: Step, vault: str, *, further: str = "") -> None:
    worker.say(
        m.Snapped(
            rank=worker.rank,
            epoch=worker.epoch,
            step=step,
            vault=vault,
            bytes=1,
            cost_us=1,
            step_us=20,
            further=further,
        )
    )


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
    """A full disk has no room for it."""
    parts: list[m.Written] = []
    if its is not None and not worker.world.disk_full:
        parts = [m.Written(f"{rank}.{order.epoch}", 1, "")]
        worker.world.files[f"{order.step}/{parts[0].file}"] = its
    refused = "" if parts else "No space left on device"
    worker.say(m.Wrote(rank=rank, epoch=order.epoch, step=order.step, state=parts, refused=refused))
