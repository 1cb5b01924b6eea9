# SPDX-License-Identifier: Apache-2.0
"""Introduction of a seat before it connects, and the library's call that connects all seats of
one communicator, in a thread of its own."""

import os
import threading
from collections.abc import Callable

from trainmover.comm.calls.threads import in_background
from trainmover.comm.nccl.device import Device
from trainmover.comm.nccl.library import Library, UniqueId
from trainmover.comm.nccl.seats import Card

_LOOK_AGAIN_S = 0.05


def own_card(library: Library, device: Device) -> Card:
    """Return the card of this process."""
    return Card(library.version, device.name, os.environ.get("NCCL_HOSTID", ""))


class Init:
    """Nothing ends the call while a seat is missing: whoever waits too long leaves it behind.

    comm   what came of it; 0: nothing
    error  why not
    """

    def __init__(
        self, library: Library, device: Device, *, size: int, seat: int, unique_id: UniqueId
    ) -> None:
        self.comm = 0
        self.error: Exception | None = None
        self._library, self._device = library, device
        self._asked = (size, seat, unique_id)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._left = False
        in_background("nccl-init", self._run)

    def _run(self) -> None:
        try:
            with self._device.here():
                self.comm = self._library.init(*self._asked)
        except Exception as error:  # noqa: BLE001  a thread's outermost loop: the waiter gets it
            self.error = error
        with self._lock:
            self._over.set()
            left = self._left
        if left and self.comm:
            self._library.comm_abort(self.comm)

    def wait(self, gives_up: Callable[[], bool]) -> bool:
        """False if it is left behind, since whoever waits has given up."""
        while not self._over.wait(_LOOK_AGAIN_S):
            if gives_up():
                with self._lock:
                    if not self._over.is_set():
                        self._left = True
                        return False
        return True

    @property
    def leaked(self) -> bool:
        """Tell whether a thread still stands in the library, and nobody waits for it."""
        return self._left and not self._over.is_set()
