# SPDX-License-Identifier: Apache-2.0
"""Everything that is being connected: to the current epoch, or to one that is to come."""

import functools
import threading
from collections.abc import Callable, Mapping

from trainmover.comm.failures import Drained
from trainmover.comm.meet.preparation import Preparation
from trainmover.comm.member import Member
from trainmover.errors import PeerLost, UserError
from trainmover.torch_internals.distributed.c10d import Store

_ANY_KEY = "-"


class Coming:
    """The preparations that run or wait for their switchover, and the newest epoch ordered.

    lock  the registry's: what is decided here is decided in one moment with draining
    """

    def __init__(self, lock: threading.RLock) -> None:
        self.newest = 0
        self._lock = lock
        self._running: list[Preparation] = []
        self._connections: dict[int, tuple[Store, Store]] = {}

    def order(self, epoch: int) -> None:
        """Nothing older than `epoch` may be connected any more."""
        with self._lock:
            self.newest = max(self.newest, epoch)
            stale = [p for p in self._running if p.epoch < self.newest]
        self._give_up(stale)

    def check(self, epoch: int, current: int) -> None:
        """Raise Drained unless `epoch` may still follow `current`."""
        if epoch < self.newest or epoch <= current:
            raise Drained(f"epoch {epoch} is out of date, {max(self.newest, current)} was ordered")

    def add(
        self,
        epoch: int,
        store: Store,
        meets: Mapping[Member, str],
        roll: Callable[[Store], list[Member]] | None = None,
        give_up_roll: Callable[[], None] | None = None,
    ) -> Preparation:
        """A preparation that is yet to be started. roll, give_up_roll: see `Preparation`."""
        connect = functools.partial(self._connection, store)
        preparation = Preparation(epoch, connect, meets, roll, give_up_roll)
        with self._lock:
            self._running.append(preparation)
        return preparation

    def find(self, epoch: int) -> Preparation | None:
        with self._lock:
            return next((p for p in self._running if p.epoch == epoch), None)

    def get(self, epoch: int) -> Preparation:
        """Raises UserError when there is none."""
        preparation = self.find(epoch)
        if preparation is None:
            raise UserError(f"epoch {epoch} was not prepared, or was discarded")
        return preparation

    def holds(self, member: Member) -> bool:
        """Whether the group's peers of a coming epoch wait for it, or may."""
        return any(member in preparation.meets for preparation in self._running)

    def drop(self, preparation: Preparation) -> None:
        """It has served, or failed: what a failed one did connect is given up."""
        with self._lock:
            if preparation in self._running:
                self._running.remove(preparation)
        if preparation.error is not None:
            self._give_up([preparation])
        else:
            self._close_the_gone([preparation])

    def discard(self, first: int, last: int) -> None:
        """Give up everything for the epochs `first` to `last`. Never blocks."""
        with self._lock:
            stale = [p for p in self._running if first <= p.epoch <= last]
            self._running = [p for p in self._running if p not in stale]
        self._give_up(stale)

    def forget_all(self) -> None:
        """Give up everything."""
        with self._lock:
            stale, self._running = self._running, []
        self._give_up(stale)

    def _give_up(self, preparations: list[Preparation]) -> None:
        """Cancel; the connection that one of them may still hold is left to it."""
        if preparations:
            with self._lock:
                self._connections = {}
        for preparation in preparations:
            preparation.cancel()
        self._close_the_gone(preparations)

    def _close_the_gone(self, preparations: list[Preparation]) -> None:
        """Groups that the script has destroyed while their peers waited."""
        with self._lock:
            gone = [
                member
                for preparation in preparations
                for member in preparation.meets
                if member.gone and not self.holds(member)
            ]
        for member in gone:
            member.communicator.close()

    def _connection(self, store: Store) -> Store:
        """A connection to the store for connecting groups only.

        gloo waits inside the store, under the lock of its client; on a shared client that would
        block its owner. One is kept for the next epoch until something was given up on it.
        Raises PeerLost when the store is gone.
        """
        with self._lock:
            known = self._connections.get(id(store))
        if known is not None and known[0] is store:
            return known[1]
        own = _another(store)
        with self._lock:
            self._connections = {id(store): (store, own)}
        return own


def _another(store: Store) -> Store:
    """Asked first whether it lives: to connect to one that is gone takes torch minutes."""
    try:
        store.check([_ANY_KEY])
    except RuntimeError as error:
        raise PeerLost(f"the store is gone: {str(error).splitlines()[0]}") from error
    try:
        return store.clone()  # type: ignore[attr-defined, no-any-return]
    except (RuntimeError, NotImplementedError):
        return store
