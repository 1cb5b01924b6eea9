"""Connections to the job's store, opened before they are needed.

Opening one resolves the peer's address back to a name, and where the name server is slow or away
that takes seconds. It must not happen while the job waits, so a thread keeps a few in stock. Every
user gets a connection of its own: a blocking call on one never holds up another.
"""

import queue
import threading

from torch._C._distributed_c10d import Store, TCPStore

from trainmover.errors import PeerLost

IN_STOCK = 3


class Stores:
    """A stock of connections to the store at `address` (host:port)."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._host, self._port = host, int(port)
        self._ready: queue.Queue[Store | Exception] = queue.Queue(IN_STOCK)
        threading.Thread(target=self._fill, name="tm-stores", daemon=True).start()

    def take(self) -> Store:
        """A fresh connection. Raises PeerLost if the store is gone."""
        ready = self._ready.get()
        if isinstance(ready, Exception):
            raise PeerLost(
                f"The job's store at {self._host}:{self._port} cannot be reached: {ready}",
                means="Groups cannot meet.",
                do="Look at the host that runs the controller.",
            ) from ready
        return ready

    def _fill(self) -> None:
        while True:
            self._ready.put(self._open())

    def _open(self) -> Store | Exception:
        try:
            return TCPStore(self._host, self._port, is_master=False, wait_for_workers=False)
        except RuntimeError as error:
            return error
