# SPDX-License-Identifier: Apache-2.0
"""Phase 1 for all groups: meet the peers of a coming epoch while training goes on."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from trainmover.comm.calls.threads import in_background
from trainmover.comm.failures import Drained
from trainmover.comm.member import Member
from trainmover.torch_internals.distributed.c10d import Store


class Preparation:
    """Groups connecting to one epoch, one after the other, in a thread of their own.

    connect  gives the store; called in that thread, since it may open a connection
    meets    each group, and the name under which it meets
    roll     says which of them all their members have; None: all of them
    wanted   what the roll has said
    met      those that are connected, so far
    error    why it ended without connecting all; None while it runs and when it succeeded
    """

    def __init__(
        self,
        epoch: int,
        connect: Callable[[], Store],
        meets: Mapping[Member, str],
        roll: Callable[[Store], Sequence[Member]] | None = None,
        give_up_roll: Callable[[], None] | None = None,
    ) -> None:
        self.epoch = epoch
        self.meets = dict(meets)
        self.wanted: Sequence[Member] = []
        self.met: list[Member] = []
        self._roll = roll
        self._give_up_roll = give_up_roll
        self.error: Exception | None = None
        self.spent_ns = 0
        self._connect = connect
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[Preparation], None]] = []
        self._cancelled = False

    def start(self) -> None:
        """Returns at once; one without anything to do is done at once."""
        if self.meets or self._roll is not None:
            in_background("prepare", self._run)
        else:
            self._end(None)

    def _run(self) -> None:
        started = time.perf_counter_ns()
        error: Exception | None = None
        try:
            store = self._connect()
            self.wanted = list(self.meets) if self._roll is None else self._roll(store)
            for member in self.wanted:
                if self._cancelled:
                    break
                self._meet(member, store)
        except Exception as failed:  # noqa: BLE001  outermost loop: the waiter gets it
            error = failed
        self.spent_ns = time.perf_counter_ns() - started
        if self._cancelled:
            self._forget()
        self._end(error)

    def _meet(self, member: Member, store: Store) -> None:
        """Also with a group that the script has destroyed meanwhile: its peers wait for it."""
        member.communicator.prepare(member.view(self.epoch, store, self.meets[member]))
        self.met.append(member)

    def _forget(self) -> None:
        for member in self.meets:
            member.communicator.discard(self.epoch)

    def _end(self, error: Exception | None) -> None:
        with self._lock:
            if self._over.is_set():
                return
            self.error = error
            self._over.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def cancel(self) -> None:
        """End it as Drained, now. What still blocks inside a communicator is left to itself."""
        self._cancelled = True
        if self._give_up_roll is not None:
            self._give_up_roll()
        self._end(Drained(f"epoch {self.epoch} was given up"))
        self._forget()

    def done(self) -> bool:
        return self._over.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """False when it is not done after `timeout_s`. Look at `error` afterwards."""
        return self._over.wait(timeout_s)

    def add_done_callback(self, callback: "Callable[[Preparation], None]") -> None:
        """Call it once when done, at once when done already, in whichever thread."""
        with self._lock:
            if not self._over.is_set():
                self._callbacks.append(callback)
                return
        callback(self)
