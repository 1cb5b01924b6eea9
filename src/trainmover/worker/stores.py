# SPDX-License-Identifier: Apache-2.0
"""Connections to a store of the job, opened before they are needed.

There are two: the one where groups meet (`meeting_place`), and torch's, for what scripts keep. The
job must not wait for a connection, so a thread keeps a few in stock. Every user gets one of its
own: a blocking call on one never holds up another.

The store may be lost; then there is soon another, elsewhere, and whoever wants a connection
meanwhile waits for that one.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta

from trainmover.errors import PeerLost, ProtocolError, StoreUnreached
from trainmover.names import ask_once
from trainmover.torch_internals.distributed.c10d import Store, TCPStore

IN_STOCK = 3
WAIT_S = 20.0
_CONNECT_S = 20.0
_TRY_AGAIN_S = 1.0
_PATIENCE = timedelta(seconds=300)
"""Torch's own: for calls that wait, not for connecting."""


class Stores:
    """A stock of connections to the store at `address` (host:port).

    connect  opens one; raises RuntimeError, as torch does, or PeerLost or ProtocolError
    wait_s   how long `take` waits for a store that is away
    stock    so many are kept
    """

    def __init__(
        self,
        address: str,
        connect: Callable[[str], Store],
        *,
        wait_s: float = WAIT_S,
        stock: int = IN_STOCK,
    ) -> None:
        self._address = address
        self._connect = connect
        self._wait_s = wait_s
        self._in_stock = stock
        self._changed = threading.Condition()
        self._stock: deque[Store] = deque()
        self._why_none = "no answer"
        self._fill_in_background()

    def take(self) -> Store:
        """A fresh connection to a store that lives. Raises PeerLost if none comes."""
        deadline = time.monotonic() + self._wait_s
        while True:
            store = self._next(deadline)
            if _lives(store):
                return store
            with self._changed:  # The others are as dead.
                self._stock.clear()
                self._changed.notify_all()

    def move(self, address: str) -> None:
        """The store is lost, and another one at `address`. Returns at once."""
        with self._changed:
            if address == self._address:
                return
            self._address = address
            self._stock.clear()
            self._changed.notify_all()
        self._fill_in_background()

    def _next(self, deadline: float) -> Store:
        with self._changed:
            if not self._changed.wait_for(lambda: self._stock, deadline - time.monotonic()):
                raise StoreUnreached(
                    f"The job's store at {self._address} cannot be reached: {self._why_none}",
                    means="Groups cannot meet.",
                    do="Look at the host that runs the controller.",
                )
            self._changed.notify_all()
            return self._stock.popleft()

    def _fill_in_background(self) -> None:
        """One thread for each address: torch cannot be told to give up the one that is gone."""
        threading.Thread(
            target=self._fill, args=(self._address,), name="tm-stores", daemon=True
        ).start()

    def _fill(self, address: str) -> None:
        while self._wants(address):
            try:
                store = self._connect(address)
            except (RuntimeError, PeerLost, ProtocolError) as error:
                self._why_none = str(error).split("\n")[0]
                time.sleep(_TRY_AGAIN_S)
                continue
            with self._changed:
                if address == self._address:
                    self._stock.append(store)
                    self._changed.notify_all()

    def _wants(self, address: str) -> bool:
        """Blocks while the stock is full; False once the store is elsewhere."""
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._stock) < self._in_stock or address != self._address
            )
            return address == self._address


def to_torch(address: str) -> Store:
    """Raises RuntimeError. For a name server, which torch asks for no good reason, it waits a
    second at most (`names`)."""
    ask_once()
    host, port = address.rsplit(":", 1)
    limit = timedelta(seconds=_CONNECT_S)
    store = TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=limit)
    store.set_timeout(_PATIENCE)
    return store


def _lives(store: Store) -> bool:
    try:
        store.check(["-"])
    except RuntimeError:
        return False
    return True
