"""Where the seats of one group meet in one epoch: each leaves some bytes, all read all of them.

The place is a prefix of the view's store, `epoch/at`. Waiting is ours: we ask again and again,
since a wait inside the store could not be given up, and one that times out there logs a warning and
may resolve names for seconds.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from trainmover.comm.communicator import View
from trainmover.comm.failures import Drained
from trainmover.errors import PeerLost, UserError
from trainmover.torch_internals.c10d import PrefixStore, Store

_ASK_AGAIN_S = 0.01


class Meeting:
    """One attempt to meet the other seats of one view. `give_up` ends it from any thread."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.store: Store = PrefixStore(f"{view.epoch}/{view.at or view.group}", view.store)
        self._given_up = threading.Event()

    def give_up(self) -> None:
        """Whoever waits here raises Drained, now or as soon as he waits."""
        self._given_up.set()

    def check(self) -> None:
        """Raise Drained when the epoch was given up."""
        if self._given_up.is_set():
            raise Drained(f"epoch {self.view.epoch} was given up")

    def take_seat(self) -> None:
        """Raises UserError when somebody has sat here before in this epoch, and views are fenced.

        Call it once, before anything is left in the store. PeerLost when that is gone.
        """
        view = self.view
        with self._at_the_store():
            first = not view.fenced or self.store.add(f"seat/{view.seat}", 1) == 1
        if not first:
            raise UserError(
                f"seat {view.seat} of group {view.group} was taken before in epoch {view.epoch}",
                means="two processes believe to be the same rank, or one connected twice",
                do="connect again under a new epoch; a prefix of the store serves once",
            )

    def exchange(self, topic: str, mine: str) -> list[str]:
        """Leave `mine`; what all seats left under `topic`, by seat. Blocks until they came.

        Raises Drained once the meeting is given up, PeerLost when a seat does not come within the
        view's timeout or the store is gone.
        """
        view = self.view
        left = self.gather(topic, mine, [s for s in range(view.size) if s != view.seat])
        return [mine if seat == view.seat else left[seat] for seat in range(view.size)]

    def gather(self, topic: str, mine: str, others: Sequence[int]) -> dict[int, str]:
        """Leave `mine`; what these seats have left. Raises as `exchange` does."""
        with self._at_the_store():
            self.store.set(f"{topic}/{self.view.seat}", mine)
            self._await({f"{topic}/{seat}": seat for seat in others})
            return {
                seat: self.store.get(f"{topic}/{seat}").decode(errors="replace") for seat in others
            }

    def hear(self, topic: str, mine: str) -> str:
        """What seat 0 says; `mine` if that is this seat. Raises as `exchange` does."""
        with self._at_the_store():
            if self.view.seat == 0:
                self.store.set(topic, mine)
                return mine
            self._await({topic: 0})
            return self.store.get(topic).decode(errors="replace")

    def _await(self, seats: Mapping[str, int]) -> None:
        deadline = time.monotonic() + self.view.timeout.total_seconds()
        pause_s = 0.0005
        while seats and not self.store.check(list(seats)):
            if time.monotonic() >= deadline:
                raise PeerLost(self._absent(seats))
            if self._given_up.wait(pause_s):
                self.check()
            pause_s = min(1.5 * pause_s, _ASK_AGAIN_S)

    @contextmanager
    def _at_the_store(self) -> Iterator[None]:
        """What its connection raises becomes PeerLost."""
        try:
            yield
        except RuntimeError as error:
            what = str(error).split("\n")[0]
            raise PeerLost(f"the store of epoch {self.view.epoch} is gone: {what}") from error

    def _absent(self, seats: Mapping[str, int]) -> str:
        absent = sorted({seat for key, seat in seats.items() if not self.store.check([key])})
        return (
            f"seats {absent} of group {self.view.group} did not come to epoch {self.view.epoch} "
            f"within {self.view.timeout.total_seconds():g} s"
        )
