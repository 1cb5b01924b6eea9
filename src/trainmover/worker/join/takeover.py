# SPDX-License-Identifier: Apache-2.0
"""A run in the sandbox takes the state and the place of its rank.

When the switchover comes it takes bulk state from its source, its record from the buddy of the lost
rank (or from the leaver itself), and its place in the groups. If the rank stood elsewhere, the
script goes there first, and state is taken once more where it arrives.
"""

import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from trainmover.comm import Drained, groups
from trainmover.errors import PeerLost, StateMismatch, StoreUnreached, TrainmoverError
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Loaded, Switch, Unproven, Warned
from trainmover.sandbox.process.overlay import Overlay
from trainmover.state import rng
from trainmover.state.arrangement import (
    Arrangement,
    arrangement_of,
    check,
    hides_trained,
    not_shown,
)
from trainmover.state.kinds.modules.large_buffers import is_hash
from trainmover.state.transfer import Direct
from trainmover.worker.join.early import Early
from trainmover.worker.join.going_back import NoneWhole, take_back
from trainmover.worker.join.refusal import Refusal
from trainmover.worker.join.regroup import stand_with_groups
from trainmover.worker.join.shadow import Shadow
from trainmover.worker.join.tail import Tail
from trainmover.worker.join.taken import Taken, Unlike, take
from trainmover.worker.join.way.journey import Journey
from trainmover.worker.join.way.trial import journey_to
from trainmover.worker.join.way.way import Ended, Silence, Way
from trainmover.worker.keep.script_graph import graph_of
from trainmover.worker.member import Member
from trainmover.worker.standing import NONE, Unwind
from trainmover.worker.step.keeper import RankRecord
from trainmover.worker.step.ledger import Ledger


class Standing(Protocol):
    """Run that stands where it may become the rank; see `Shadow`."""

    member: Member
    refusal: Refusal
    overlay: Overlay
    number: float

    def trace(self) -> str:
        """Return the trace of its first steps."""


class Takeover:
    """Of one joiner, from where its run stands in the sandbox until it is live. Main thread only,
    but for `cancel` and `take_early`.

    shadow      the run
    switching   guarded by the standing's lock: its groups are being connected to peers
    way         to where the rank stood, once its record is known
    journey     on that way, until it arrives; None: it does not go there, or is not on it yet
    tail        the lines behind the rank's last step, if it arrives there
    broken_off  of the run before in this process, if all ranks go back: time has passed since
    early       what it takes of its rank's state before the pause of a move
    direct      the way from its source's device to its own, made before that pause
    """

    def __init__(self, shadow: Standing, token: bytes) -> None:
        self.shadow = shadow
        self.switching = False
        self.way: Way | None = None
        self.journey: Journey | None = None
        self.tail: Tail | None = None
        self.broken_off: Ledger | None = None
        self._member = member = shadow.member
        self._rank = member.rank
        self._standing = member.standing
        self._say = member.say
        self._token = token
        self.early = Early(member.tracked, token)
        self.direct = Direct(token, groups.pairing)
        self._cancelled = threading.Event()
        self._bound_for = NONE
        self._order: Switch | None = None  # The switchover that it takes part in.
        self._before: Taken | None = None  # What it took of the state before its journey.
        self._arranged = arrangement_of(())  # As the run stood in the sandbox.

    # --- from the sandbox to the job --------------------------------------------------------------

    def stand(self) -> None:
        """The run is to stand here. Before it parks, since ranks wait for one that has. Raises
        StateMismatch if what it trains is hidden."""
        self._arranged = self._member.tracked.arrangement()
        if path := hides_trained(self._arranged):
            self.shadow.refusal.fails(not_shown(path))

    def begin(self, bound_for: Epoch) -> None:
        """The run stands in the sandbox. Returns when it is live, or about to set out for where the
        rank stood.

        Raises Unwind if it is not needed any more; StateMismatch if it cannot take the rank.
        """
        self._bound_for = bound_for
        self._join_until(NONE)

    def try_way(self, shadow: Shadow, record: RankRecord) -> None:
        """Set out for where the rank was at that record, to see whether the run would come there
        as the rank did. Nothing of it counts."""
        shadow.refusal.graph = graph_of(record.graph, shadow.lookout.whole)
        if shadow.refusal.graph is None:  # The rank has begun another whole one since.
            raise Unwind
        shadow.refusal.is_trial = True
        self.journey = journey_to(shadow, record)
        self.way = self.journey.way
        self.journey.begin()

    def arrive(self) -> None:
        """At the end of its journey: here the rank stood. Take its state once more and its place.

        Returns when it is live; raises as `begin` does.
        """
        journey, self.journey = self.journey, None
        if journey is not None:
            self.shadow.overlay.check()
        order = self._order
        assert order is not None
        self._join(order, self._before)
        self._join_until(order.epoch)

    def lacks(self, why: str) -> None:
        """The run is over and cannot become the rank, since that had what nobody holds. Say so for
        each switchover that counts on it. Returns once it is told to leave."""
        order = self._order
        assert order is not None
        try:
            while True:
                self._say(Unproven(rank=self._rank, epoch=order.epoch, lacks=why))
                order = self._await_order(order.epoch)
        except Unwind:
            return

    @property
    def has_an_order(self) -> bool:
        """Whether a switchover has counted on it."""
        return self._order is not None

    def _join_until(self, done: Epoch) -> None:
        """A newer epoch while loading means: load again. Until live, or on the way."""
        while self._member.is_shadow and self.journey is None:
            order = self._order = self._await_order(done)
            done = order.epoch
            self._join(order)

    def _await_order(self, done: Epoch) -> Switch:
        standing = self._standing
        with standing.changed:
            order = standing.until(lambda: standing.next_to_join(self._bound_for, done))
            self._cancelled, self.switching = threading.Event(), True
            return order

    def _join(self, order: Switch, before: Taken | None = None) -> None:
        """Take state and place; but first go where the rank stood, if that is elsewhere.

        before  what was taken for the same order, if it went there
        """
        taken = self._take_and_connect(order, arrived=self.way is not None)
        if taken is None:
            return
        if before is not None:
            taken = taken.after(before)
        member = self._member
        member.updates.changes.early |= bool(taken.header["early"])
        if self.way is None:
            self.way = self._way_to(taken, order.committed)
            at = member.standing_at()
            if self.way.leads_on_from(member.loops.ordinals, member.loops.member, at):
                self._before = taken
                self._set_out(self.way)
                return
            self._stand_at_fetch(self.way)
            if not taken.is_put:
                self._join(order)
                return
        self._become(self.way, order, taken)
        certificate = taken.certificate(order, self._rank, self.shadow.trace())
        if not certificate.equal:
            raise _not_received(self._rank)
        self._say(Loaded(rank=self._rank, epoch=order.epoch, certificate=certificate))
        self._take_place(order)

    def _become(self, way: Way, order: Switch, taken: Taken) -> None:
        """The rank, as its last step has left it. Raises StateMismatch if variables differ."""
        member, record = self._member, way.record
        _check_large(self._rank, record, taken.header["small"])
        member.tracked.load_small(record.top.small)  # Bulk has the source's buffers.
        self.shadow.refusal.check()
        theirs = Arrangement(*taken.header["arranged"])
        check(theirs, member.tracked.arrangement(theirs.moved), self._arranged)
        ends = order.closing or member.over
        if order.closing and not member.over:
            self.tail = Tail(order.committed, member.tracked, record.top.small)
        groups.tap = Ended() if ends else None
        groups.roster.arrive()
        with self._standing.changed:
            self._standing.become(order.committed)

    def _take_place(self, order: Switch) -> None:
        """Live on return, unless the order is not the newest any more, or the buddy is gone."""
        member = self._member
        try:
            further = order.further.get(self._rank, "")
            member.deposit.follow(order.buddies[self._rank], order.epoch, further)
        except PeerLost as lost:
            self._give_up(order, lost)
            return
        member.boundary.say_switched(order.epoch)
        member.boundary.await_go(order.epoch)
        if self._standing.epoch == order.epoch:
            member.is_shadow = False
            self.shadow.overlay.lift()
            if self.way is not None:
                member.gate.given_up = self.way.record.given_up
            self.direct.close()

    # --- state, and where it belongs --------------------------------------------------------------

    def _take_and_connect(self, order: Switch, *, arrived: bool) -> Taken | None:
        """State and groups at the same time: they share nothing but the processor.

        arrived: as in `take`. None if either could not be had.
        """
        snapshots = self._member.snapshots
        snapshots.changed(order.snapshot_every)
        if order.back:
            snapshots.back_to(order.committed)
        with ThreadPoolExecutor(1, "tm-fetch") as pool:
            take_it = self._take_back if order.back else self._take
            taking = pool.submit(take_it, order, arrived=arrived)
            try:
                self._member.boundary.connect(order)
                self._member.script_graph.get_ready(sys._getframe(1))
                return taking.result()
            except (Drained, PeerLost) as lost:
                self._give_up(order, lost)  # Ends the fetch too: the pool waits for it.
                return None

    def _take(self, order: Switch, *, arrived: bool) -> Taken:
        member = self._member
        return take(
            order,
            self._rank,
            member.tracked,
            token=self._token,
            known=member.deposit.latest,  # The way led by it, and committed steps are never undone.
            early=self.early,
            direct=self.direct,
            cancelled=self._cancelled,
            say=self._say,
            arrived=arrived,
        )

    def _take_back(self, order: Switch, *, arrived: bool) -> Taken:
        member = self._member
        if self.broken_off is not None:
            member.ledger.go_on_from(self.broken_off)
        return take_back(
            order,
            self._rank,
            member.tracked,
            member.snapshots,
            token=self._token,
            cancelled=self._cancelled,
            say=self._say,
            arrived=arrived,
        )

    def _give_up(self, order: Switch, lost: Exception) -> None:
        self._cancelled.set()
        if isinstance(lost, Unlike):
            holders, unlike = lost.holders, lost.unlike
            fact = Unproven(rank=self._rank, epoch=order.epoch, holders=holders, unlike=unlike)
            self._say(fact)
        elif self._standing.ordered <= order.epoch:
            unusable = order.committed if isinstance(lost, NoneWhole) else Step(0)
            reason = str(lost).split("\n")[0]
            self._member.boundary.broken(
                reason,
                epoch=order.epoch,
                unusable=unusable,
                storeless=isinstance(lost, StoreUnreached),
            )

    def _way_to(self, taken: Taken, committed: Step) -> Way:
        """Back to the last fetch of the rank; see `keeper` for what is passed over."""
        member = self._member
        if taken.source != self._rank and taken.header["record"]:
            given = RankRecord.from_bytes(taken.header["record"])
            self.shadow.refusal.refuse_between(taken.record, given)
        record = member.deposit.latest = taken.record
        self.shadow.refusal.graph = taken.graph
        member.deposit.samples.go_on_from(taken.samples)
        member.calls = Step(record.step - 1)
        member.ledger.take_over(record.rows, committed)
        return Way(self._rank, record)

    def _set_out(self, way: Way) -> None:
        self.journey = Journey(
            self._member,
            way,
            arrive=self.arrive,
            refusal=self.shadow.refusal,
            number=self.shadow.number,
        )
        self.journey.begin()

    def _stand_at_fetch(self, way: Way) -> None:
        """The rank stood at this very fetch: nothing lies between.

        A loader that makes collectives as a pass begins made them long ago.
        """
        member = self._member
        groups.tap = Silence()
        groups.roster.travel()
        stand_with_groups(way.record)
        self.shadow.refusal.restore()  # What a pass is made of is among it.
        _, position, _, _, before, _ = way.record.positions[0]
        member.loops.resume(position, way.record.beside, before)
        member.draws.stand_at(way.record)
        rng.restore(way.record.top.rng)
        way.reached = 1

    # --- called by the control thread -------------------------------------------------------------

    def cancel(self) -> None:
        """Whatever is being fetched is of no use any more."""
        self._cancelled.set()
        self.cancel_early()

    def cancel_early(self) -> None:
        """The move that it was meant for does not come to its pause."""
        self.early.cancel()
        self.direct.cancel()

    def take_early(self, source: str) -> None:
        """What of the rank's state does not change, while the job trains, and the way for the rest
        of it; in a thread of its own. Without it the pause is longer, and nothing else."""
        try:
            self.direct.open(source)
            self.early.take(source)
        except PeerLost:
            pass  # The controller knows best who is gone.
        except TrainmoverError as error:
            text = f"{error.happened} (before the pause of a move)"
            self._say(Warned(rank=self._rank, text=text))


def _not_received(rank: Rank) -> StateMismatch:
    return StateMismatch(
        f"Rank {rank} did not receive the state its source sent: the digests differ.",
        means="This process cannot take the rank; another one can, or all ranks go back.",
        do="If one machine says so again and again, look at its memory.",
    )


def _check_large(rank: Rank, record: RankRecord, theirs: Mapping[str, bytes]) -> None:
    """Buffers that no record carries are the source's here. Raises StateMismatch if the rank had
    others: no gate has shown it yet, so nobody has kept what it had.

    theirs  small state of the source
    """
    for name, own in record.top.small.items():
        if is_hash(name) and own != theirs.get(name, own):
            raise StateMismatch(
                f"Rank {rank} had large buffers in `{name.rpartition('.')[0]}` that are others on "
                "the rank which holds a copy of its state.",
                means="What it had made of them is gone with it.",
                do="Change what differs from rank to rank before optimizer.step(), from the first "
                "step on.",
            )
