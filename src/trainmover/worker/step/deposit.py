# SPDX-License-Identifier: Apache-2.0
"""What others hold of a rank, so that it can be lost, and what it gives to who takes its place.

buddy       its record, told at every fetch and safe before every commit; its first steps
joiner      its state, at the boundary
snapshots   the same state, from time to time, for when all ranks go back
"""

import time
from collections.abc import Callable

import torch
import xxhash

from trainmover.errors import PeerLost, UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.state.encode import encode
from trainmover.state.proof.samples import Proof, Samples
from trainmover.state.tracked import Tracked
from trainmover.state.transfer import Offered
from trainmover.worker.keep.first_steps import Recording
from trainmover.worker.keep.rounds import is_compared
from trainmover.worker.station import Station
from trainmover.worker.step.boundary import Boundary
from trainmover.worker.step.gate import Gate
from trainmover.worker.step.keeper import Keeper, RankRecord
from trainmover.worker.step.ledger import Ledger
from trainmover.worker.step.updates import Updates


class Deposit:
    """Of one rank. Main thread only, but for `offered`.

    latest      what a joiner would need now; None before the first fetch
    samples     of the shared state, at the newest gates
    """

    def __init__(
        self,
        rank: Rank,
        station: Station,
        *,
        tracked: Tracked,
        keeper: Keeper,
        ledger: Ledger,
        boundary: Boundary,
        gate: Gate,
        updates: Updates,
        recording: Recording,
    ) -> None:
        self.latest: RankRecord | None = None
        self.samples = Samples(tracked)
        self._rounds_every = station.spec.fingerprint_every
        self._rank = rank
        self._standing = station.standing
        self._snapshots = station.snapshots
        self._tracked = tracked
        self._keeper = keeper
        self._ledger = ledger
        self._boundary = boundary
        self._gate = gate
        self._updates = updates
        self._recording = recording
        self._buddy = ""

    def follow(self, buddy: str, epoch: Epoch, further: str = "") -> None:
        """Keep record and first steps with this buddy, from `epoch` on. Raises PeerLost.

        further: has one more copy of each snapshot, and of the first steps
        """
        other, self._keeper.further = self._keeper.further != further, further
        self._buddy, self._keeper.epoch = buddy, epoch
        self._snapshots.follow(self._rank, buddy, self._standing.epoch, further)
        if self._keeper.follow(buddy, self.latest) or other:
            self._recording.put()

    def tell(self, record: RankRecord) -> None:
        """Tell the buddy, without waiting, that the rank stands at a fetch."""
        record.sample, self.latest = self.samples.newest, record
        if self._buddy and not self._boundary.tainted():
            try:
                self._keeper.put(self.latest)
            except PeerLost as lost:
                self.buddy_is_gone(lost)

    def is_safe(
        self,
        step: Step,
        applies: torch.optim.Optimizer | None = None,
        *,
        returned: bool = False,
        come_through: Callable[[], bool],
    ) -> bool:
        """Wait until the buddy has the record of the fetch for this step; False: the epoch ends.

        applies: what is to apply its gradients behind the gate; nobody else has a part in that
        returned: the gate is at the step's return
        come_through: waits for the step's collectives on a device
        """
        if self.latest is None:
            raise _no_fetch(self._rank)
        small = self._tracked.small_states()
        self.samples.take(
            step,
            anew=is_compared(Step(step - 1), self._rounds_every),
            applies=None if self._gate.likeness.vain else applies,
            ahead=not returned and not self._updates.changes.early,
            hashes=[*map(small.__getitem__, self._tracked.large_buffers)],
        )
        self._gate.likeness.sample = self.samples.hash
        if self._boundary.tainted():
            return False
        try:
            return come_through() and self._keeper.safe(self._boundary.tainted)
        except PeerLost as lost:
            self.buddy_is_gone(lost)
            return False

    def buddy_is_gone(self, lost: PeerLost) -> None:
        """The rank cannot go on in this epoch."""
        self._boundary.broken(f"its buddy is gone: {lost.happened}")

    def take_snapshot(self, step: Step) -> None:
        """All ranks do so at their first fetch after the step agreed upon, once."""
        begun_ns = time.monotonic_ns()
        state = self.offered()
        self._snapshots.take(
            self._rank,
            step,
            state,
            epoch=self._standing.epoch,
            vault=self._buddy,
            begun_ns=begun_ns,
            step_us=self._ledger.median_us or 0,
            later=() if self._snapshots.is_waited_for else self._updates.of_updates(state.tensors),
        )
        self._snapshots.await_own(step, self._boundary.tainted)

    def offered(self) -> Offered:
        """This rank's state at the boundary, where it waits for `Go`. Optimizers are set as they
        were at the fetch meanwhile: others may not have come further."""
        latest = self.latest
        has_fetched = latest is not None and latest.step == self._standing.committed + 1
        small = latest.top.small if latest and has_fetched else self._tracked.small_states()
        with self._tracked.optimizers_as(small):
            bulk, tensors = self._tracked.bulk_header()
            digest, hashes = self._tracked.replica_digest()
        graph = self._keeper.graph
        header = {
            "bulk": bulk,
            "arranged": list(self._tracked.arrangement(self._tracked.moved_since(small))),
            "digest": digest,
            "record": latest.to_bytes() if latest is not None else b"",
            "graph": graph.to_bytes() if graph is not None else b"",
            "early": self._updates.changes.early,
            "small": small,
        }
        alike = f"{digest} {xxhash.xxh3_128_hexdigest(bulk)}"  # and their order
        paths = self._tracked.bulk_paths(bulk)
        proof = Proof(digest, self.samples.told()).to_bytes()
        hashed = [hashes[path] for path in paths]
        return Offered(encode(header), tensors, alike, hashed, proof=proof)

    def forget(self) -> None:
        """Drop what was kept here."""
        self.latest = None
        self.samples.forget()


def _no_fetch(rank: Rank) -> UserError:
    return UserError(
        f"Rank {rank} makes a step before it has drawn a batch from job.batches().",
        means="Ranks are taken over where they draw: this one could not be.",
        do="Draw for each step, on every rank. Without a loader the loop is "
        "`for step in job.range(1000)`.",
    )
