# SPDX-License-Identifier: Apache-2.0
"""What others hold of a rank, so that it can be lost, and what it gives to who takes its place.

buddy       its record, told at every fetch and safe before every commit; its first steps
joiner      its state, at the boundary
snapshots   the same state, from time to time, for when all ranks go back
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import xxhash

from trainmover.errors import PeerLost, UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Row
from trainmover.state import rng
from trainmover.state.encode import encode
from trainmover.state.proof.samples import Proof, Samples
from trainmover.state.script.comparison import states_in
from trainmover.state.tracked import Tracked
from trainmover.state.transfer import Offered
from trainmover.worker.data.inputs import hash_of
from trainmover.worker.keep.first_steps import Recording
from trainmover.worker.keep.rounds import is_compared
from trainmover.worker.station import Station
from trainmover.worker.step.behind import Behind
from trainmover.worker.step.boundary import Boundary
from trainmover.worker.step.courses import Courses
from trainmover.worker.step.gate import Gate
from trainmover.worker.step.keeper import Begun, Keeper, Moment, RankRecord, row_bytes
from trainmover.worker.step.ledger import Ledger
from trainmover.worker.step.results.given import Given, lately
from trainmover.worker.step.updates import Updates


class Deposit:
    """Of one rank. Main thread only, but for `offered`.

    latest      what a joiner would need now; None before the first fetch
    at_gate     small states at the gate of the step under way
    gate_small  those of the last committed step
    return_small  and at its return
    behind      what that step has changed behind its gate
    between     names of small state that lines between two steps have changed: until the last
                fetch, and until the one before
    courses     what small state, and variables that steps store to, have been at all fetches until
                now
    captured    the script's variables: at the first fetch, where a run in the sandbox stands behind
                the recorded steps, at the last fetch but one, and at the last
    samples     of the shared state, at the newest gates
    several     steps have followed one fetch
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
        self.at_gate: dict[str, bytes] = {}
        self.gate_small: dict[str, bytes] = {}
        self.return_small: dict[str, bytes] = {}
        self.behind = Behind()
        self.between: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
        self.courses = Courses()
        self.captured = [b"", b"", b"", b""]
        self.samples = Samples(tracked)
        self.several = False
        self._fetch = 0
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

    def tell(self, record: RankRecord, fetch: int, stored: Mapping[str, bytes]) -> None:
        """The rank stands at a fetch: tell the buddy without waiting. It may stand there for
        several epochs, and tell it in each: what was before is what was at another one.

        fetch: its number
        stored: what variables are that steps store to
        """
        again, self._fetch = fetch == self._fetch, fetch
        given = self.latest.given if self.latest is not None else []
        if given and given[-1].step >= record.top_step:
            record.given = lately(given, record.top_step)
        record.sample, self.latest = self.samples.newest, record
        returned, before = self.return_small, self.between[1 if again else 0]
        known = before
        small = record.top.small if record.now is None else record.now.small
        if returned and small != returned:
            known |= {name for name, state in small.items() if returned.get(name, state) != state}
        self.between = known, before
        record.courses = self.courses.fetched(record.top_step, small, stored)
        first, stood, then, newest = self.captured
        stood = stood or (b"" if self._recording.is_open else record.variables)
        last = then if again else newest
        self.captured = [first or record.variables, stood, last, record.variables]
        if self._buddy and not self._boundary.tainted():
            try:
                self._keeper.put(self.latest)
            except PeerLost as lost:
                self.buddy_is_gone(lost)

    def begin_step(
        self,
        step: Step,
        args: Any,
        kwargs: Any,
        *,
        small: Mapping[str, bytes],
        variables: Callable[[], bytes],
    ) -> None:
        """Who takes the rank in this step stands at the last fetch, runs the lines behind it again
        on what the steps since have made, and must call this one with the same: if it is not the
        first since then, the buddy is told with what, without waiting. The lines up to the first
        one must have come to the same: that goes with the records of all.

        small: states of small tracked objects, and others, now
        variables: captures those of the script
        """
        record = self.latest
        self.several = self.several or (record is not None and step > record.top_step)
        if record is None or not self.several:
            return
        is_first = step == record.top_step and not record.reserve
        changed = self._changed_since(record.top.small, small)
        known = record.begun.variables if record.begun is not None else b""
        begun = Begun(variables() if is_first else known, changed)
        self.latest = record.but(inputs=[step, hash_of(args, kwargs)], begun=begun)
        if step > record.top_step and self._buddy and not self._boundary.tainted():
            try:
                self._keeper.put(self.latest)
            except PeerLost as lost:
                self.buddy_is_gone(lost)

    def _changed_since(
        self, then: Mapping[str, bytes], now: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        """Tracked objects alone."""
        known = {name: now[name] for name in self._tracked if name in now}
        return {name: one for name, one in known.items() if one != then.get(name)}

    def is_safe(
        self,
        step: Step,
        committing: Row,
        drawn: list[list[int]],
        applies: torch.optim.Optimizer | None = None,
        *,
        returned: bool = False,
        result: bytes = b"",
        come_through: Callable[[], bool],
    ) -> bool:
        """Put the record for the step after this one, wait for the buddy's acknowledgement.

        drawn: hashes of the batches since the record's place
        applies: what is to apply its gradients behind the gate; nobody else has a part in that
        returned: the gate is at the step's return
        result: what the step gives, packed, if that is known and no row tells it
        come_through: waits for the step's collectives on a device, while the record is on its way
        """
        self.at_gate = self._tracked.small_states()
        rows = [*self._ledger.in_doubt, row_bytes(committing)]
        now = Moment(rng.capture(), self.at_gate)
        if self.latest is None:
            raise _no_fetch(self._rank)
        self.samples.take(
            step,
            anew=is_compared(Step(step - 1), self._rounds_every),
            applies=None if self._gate.likeness.vain else applies,
            ahead=not returned and not self._updates.changes.early,
            hashes=[*map(self.at_gate.__getitem__, self._tracked.large_buffers)],
        )
        self._gate.likeness.sample = self.samples.hash
        given = self.latest.given
        given = lately(given, self.latest.top_step, before=step) if given else []
        if result:
            given.append(self._given(step, committing.values, result))
        self.latest = self.latest.but(
            step=Step(step + 1),
            complete=False,
            returned=returned,
            unproved=self.behind.unproved,
            now=now,
            rows=rows,
            drawn=drawn,
            sample=self.samples.newest,
            given=given,
        )
        return self._keep_safe(self.latest, come_through)

    def step_is_over(self) -> int:
        """The step that went through the gate has returned. Hash of what it has changed since."""
        self.gate_small = self.at_gate
        self.return_small = small = self._tracked.small_states()
        changed = self.behind.look(self.at_gate, small, alike=self._gate.alike)
        record, state = self.latest, rng.capture()
        self.behind.drew = record is None or record.now is None or record.now.rng != state
        if record is not None and (self.behind.drew or self.behind.unproved):
            self.latest = record.but(returned=True, now=Moment(state, small))
            self._keep_safe(self.latest)
        return changed

    def keep_given(self, step: Step, values: dict[str, float], result: bytes) -> None:
        """What the step that is over has given: the script gets it once the buddy has it.

        result: packed; b"" if a row tells it, or the record of its gate has it: then the values go
        with the next record, for those that need them later
        """
        record = self.latest
        if record is None:
            return
        if result:
            record.given = lately(record.given, record.top_step, before=step)
        elif record.given and record.given[-1].step == step:
            return
        record.given.append(self._given(step, values, result))
        if result:
            self._keep_safe(record)

    def _given(self, step: Step, values: Mapping[str, float], result: bytes) -> Given:
        record = self.latest
        if record is None or not self.several:
            return Given(step, values, result)
        return Given(step, values, result, self._changed_since(record.top.small, self.at_gate))

    def _keep_safe(
        self, record: RankRecord, come_through: Callable[[], bool] = lambda: True
    ) -> bool:
        """Put it, and wait until the buddy has it. False if the epoch has ended."""
        if self._boundary.tainted():
            return False
        try:
            self._keeper.put(record)
            return come_through() and self._keeper.safe(self._boundary.tainted)
        except PeerLost as lost:
            self.buddy_is_gone(lost)
            return False

    def stand_beside(
        self, source: Mapping[str, Any], small: Mapping[str, bytes], rank: RankRecord
    ) -> None:
        """A joiner's, which has made no step yet: of the last one it knows what its source told.

        small: what it has become, which is the source's only where both hold the same
        rank: the record of the one whose place it takes
        """
        every = rank.top.small | states_in(rank.variables, rank.courses)
        self.courses.go_on_as(rank.top_step, every, rank.courses)
        alike = {name for name, state in source["small"].items() if small.get(name) == state}
        gate, at_return = source["gate_small"], source["return_small"]
        self.gate_small = {name: state for name, state in gate.items() if name in alike}
        self.return_small = {name: state for name, state in at_return.items() if name in alike}
        self.captured[0] = source["variables"][0]
        self.between = (frozenset(source["between"]),) * 2
        self.behind.stand_beside(source["behind"], source["proved"], drew=source["drew_behind"])

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
        small = self._small_at_boundary()
        with self._tracked.optimizers_as(small):
            bulk, tensors = self._tracked.bulk_header()
            digest, hashes = self._tracked.replica_digest()
        record = self.latest.to_bytes() if self.latest is not None else b""
        first, stood, before, newest = self.captured
        header = {
            "bulk": bulk,
            "arranged": list(self._tracked.arrangement(self._tracked.moved_since(small))),
            "digest": digest,
            "record": record,
            "graph": self._keeper.graph.to_bytes() if self._keeper.graph is not None else b"",
            "gate_small": self.gate_small,
            "return_small": self.return_small,
            "undo": self._gate.undo,
            "early": self._updates.changes.early,
            "moved": self._updates.changes.moved if self._has_fetched else [],
            "behind": self.behind.names,
            "unproved": self.behind.unproved,
            "proved": sorted(self.behind.proved),
            "parted": self.behind.parted,
            "between": sorted(self.between[self._has_fetched]),
            "courses": self.courses.at,
            "drew_behind": self.behind.drew,
            "small": small,
            "variables": [first, stood, *([before, newest] if self._has_fetched else [b"", b""])],
        }
        alike = f"{digest} {xxhash.xxh3_128_hexdigest(bulk)}"  # and their order
        paths = self._tracked.bulk_paths(bulk)
        proof = Proof(digest, self.samples.told()).to_bytes()
        hashed = [hashes[path] for path in paths]
        return Offered(encode(header), tensors, alike, hashed, proof=proof)

    def _small_at_boundary(self) -> dict[str, bytes]:
        """As it was at the fetch for the next step, if that has been: there the joiner arrives."""
        latest = self.latest
        if latest and latest.complete and latest.now is not None:
            return latest.now.small
        return latest.top.small if latest and self._has_fetched else self._tracked.small_states()

    @property
    def _has_fetched(self) -> bool:
        """Whether the last fetch was for the step after the last committed one."""
        latest = self.latest
        return latest is not None and latest.top_step == self._standing.committed + 1

    def forget(self) -> None:
        """Drop what was kept here."""
        self.latest, self.captured = None, [b"", b"", b"", b""]
        self._fetch = 0
        self.gate_small, self.return_small = {}, {}
        self.between = frozenset(), frozenset()
        self.courses.forget()
        self.behind.forget()
        self.samples.forget()


def _no_fetch(rank: Rank) -> UserError:
    return UserError(
        f"Rank {rank} makes a step before it has drawn a batch from job.batches().",
        means="Ranks are taken over where they draw: this one could not be.",
        do="Draw for each step, on every rank. Without a loader the loop is "
        "`for step in job.range(1000)`.",
    )
