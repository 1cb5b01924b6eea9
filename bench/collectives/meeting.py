# SPDX-License-Identifier: Apache-2.0
"""Where gloo's ranks find each other: a store that lives in one process of the crew."""

from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore

VISIT_S = 60.0


class Meeting:
    """One process's end of it. It serves or visits; visiting one's own store is allowed."""

    def __init__(self) -> None:
        self._store: TCPStore | None = None

    def serve(self) -> int:
        """The port, chosen by the kernel."""
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        return int(self._store.port)

    def visit(self, port: int) -> None:
        if self._store is None:
            wait = timedelta(seconds=VISIT_S)
            self._store = TCPStore("127.0.0.1", port, is_master=False, timeout=wait)

    def room(self, name: str) -> Store:
        """A part of the store that nobody else uses."""
        if self._store is None:
            raise ValueError("neither served nor visited")
        return PrefixStore(name, self._store)
