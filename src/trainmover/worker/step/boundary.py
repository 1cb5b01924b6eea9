# SPDX-License-Identifier: Apache-2.0
"""Between two steps: where members are exchanged.

If a newer epoch was ordered, or a pause agreed at the gate, a rank waits here: it says where it
stands, gives its state to whoever joins, exchanges its groups, and trains on once the epoch is in
force.
"""

from collections.abc import Callable
from functools import partial

from trainmover.comm import Drained, groups
from trainmover.errors import PeerLost, StoreUnreached
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import AtBoundary, Interrupted, Switch, Switched
from trainmover.state.transfer import Offer
from trainmover.worker.station import Station
from trainmover.worker.step.ledger import Ledger

RAISE_GRACE_S = 1.0


class Boundary:
    """One rank's part in every change of membership.

    follow   keep the rank's record with this buddy from now on, and snapshots with one more
    exchange  called before members are exchanged
    offer    the rank's state for a joiner; called in a thread of the state server, while the main
             thread waits here
    misled   since the last switchover a collective outside of any step was cut short, or the script
             has done what cannot be done again
    cut_short  any of the script's was: what it has raised since may come of that
    closing  the switchover under way, or past, is the last: some script has ended
    """

    def __init__(
        self,
        rank: Rank,
        station: Station,
        ledger: Ledger,
        *,
        exchange: Callable[[], None],
        follow: Callable[[str, Epoch, str], None],
        offer: Offer,
    ) -> None:
        self.closing = False
        self.misled = self.cut_short = False
        self._rank = rank
        self._ledger = ledger
        self._standing = station.standing
        self._say = station.link.say
        self._server = station.server
        self._snapshots = station.snapshots
        self._stores = station.stores
        self._begin_exchange = exchange
        self._follow = follow
        self._offer = offer

    def tainted(self) -> bool:
        """Whether what was computed since the last boundary may be garbage.

        After a closing switchover groups drain for good: no step follows, only the script's end.
        """
        standing = self._standing  # As `pending` has it: this is asked many times a step.
        return standing.ordered > standing.epoch or (groups.draining and not self.closing)

    def soon_tainted(self) -> bool:
        """Whether a lost peer can be behind what a step raises: its loss may be heard a moment
        later. (Not in `member.py`: there the script is what a rank is seen to be about, and it
        would be blamed for this moment.)"""
        with self._standing.changed:
            return self._standing.changed.wait_for(self.tainted, RAISE_GRACE_S)

    def drains(self) -> bool:
        """Whether collectives end with what their buffers hold, and a step is to follow."""
        return groups.draining and not self.closing

    def settle(self, at_fetch: Callable[[], None] | None = None) -> None:
        """Return when nothing is pending and this rank may train in the epoch in force.

        at_fetch: given at a fetch, where a pause stops the rank too; it keeps the place.
        Raises Unwind if the rank has moved elsewhere, or the job is done.
        """
        pausing = at_fetch is not None
        if not self.tainted() and not (pausing and self._standing.paused):
            return  # The common case takes no lock: a late order is seen at the gate.
        groups.come_through(self.tainted)  # A drain cuts what it does not know to have ended.
        while (epoch := self._await_target(pausing=pausing)) is not None:
            if at_fetch is not None:
                at_fetch()
            committed = self._standing.committed
            at = AtBoundary(rank=self._rank, epoch=epoch, committed=committed, misled=self.misled)
            self._say(at)
            order = self._standing.until(partial(self._standing.next_switch, epoch))
            if order is not None:
                self._switch(order)
        self.misled = self.cut_short = False

    def _await_target(self, *, pausing: bool) -> Epoch | None:
        standing = self._standing
        return standing.until(
            lambda: standing.target(self._rank, drains=self.drains(), pausing=pausing)
        )

    def _switch(self, order: Switch) -> None:
        """Exchange the members that changed, serve state to those who join, wait for `Go`."""
        key = str(order.epoch)
        self._begin_exchange()
        if any(self._rank == source.rank for held in order.sources.values() for source in held):
            groups.await_empty_device()  # What is given away is final.
            self._server.offer(key, self._offer)
        try:
            if self._rank not in order.sources and self._exchange(order):
                self.say_switched(order.epoch)
            self.await_go(order.epoch)
        finally:
            self._server.withdraw(key)

    def _exchange(self, order: Switch) -> bool:
        """Phase 2 here. False if a newer epoch came first."""
        self._snapshots.changed(order.snapshot_every)
        try:
            self.connect(order)
            further = order.further.get(self._rank, "")
            self._follow(order.buddies[self._rank], order.epoch, further)
        except Drained:
            return False
        except PeerLost as lost:
            storeless = isinstance(lost, StoreUnreached)
            self.broken(lost.happened, epoch=order.epoch, storeless=storeless)
            return False
        return True

    def connect(self, order: Switch) -> None:
        """Bring the groups into the epoch, unless they are in it. Raises Drained or PeerLost."""
        self.closing = order.closing
        if not order.closing and groups.epoch < order.epoch:
            groups.await_empty_device()
            groups.switchover(order.epoch, self._stores.take())

    def say_switched(self, epoch: Epoch) -> None:
        """From here on `Go` puts the epoch in force."""
        with self._standing.changed:
            self._standing.connected(epoch)
        self._say(Switched(rank=self._rank, epoch=epoch))

    def await_go(self, epoch: Epoch) -> None:
        """Returns when the epoch is in force, or a newer one was ordered."""
        if self._standing.until(partial(self._standing.in_force, epoch)):
            self._ledger.first_of = epoch

    def broken(
        self,
        reason: str,
        *,
        epoch: Epoch | None = None,
        unusable: Step = Step(0),
        storeless: bool = False,
    ) -> None:
        """Say that this rank cannot go on in the epoch (None: in force): all must leave it.

        unusable, storeless: see `Interrupted`
        """
        epoch = epoch or self._standing.epoch
        self._say(
            Interrupted(
                rank=self._rank,
                epoch=epoch,
                reason=reason,
                unusable=unusable,
                storeless=storeless,
            )
        )
