# SPDX-License-Identifier: Apache-2.0
"""Where the seats of one group meet in one epoch: each leaves some bytes, all read all of them.

The place is a prefix of the view's store, `epoch/at`. Under the runtime that is the job's own,
where only its processes come (`worker.meeting_place`), so what lies there is a seat's. Waiting is
ours: we ask again and again, since a wait inside the store could not be given up, and one that
times out in torch's logs a warning and may resolve names for seconds.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from trainmover.comm.communicator import View
from trainmover.comm.failures import Drained
from trainmover.errors import PeerLost, UserError
from trainmover.torch_internals.distributed.c10d import PrefixStore, Store

_ASK_AGAIN_S = 0.01


class Meeting:
    """One attempt to meet the other seats of one view. `give_up` ends it from any thread."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._prefix = f"{view.epoch}/{view.at or view.group}/"
        self._given_up = threading.Event()

    @property
    def store(self) -> Store:
        """What is kept in this meeting only. Hold it as long as it is used, and the view too."""
        return PrefixStore(self._prefix[:-1], self.view.store)

    def give_up(self) -> None:
        """Whoever waits here raises Drained, now or as soon as he waits."""
        self._given_up.set()

    @property
    def is_given_up(self) -> bool:
        """Whether `give_up` was called."""
        return self._given_up.is_set()

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
            first = not view.fenced or view.store.add(self._key(f"seat/{view.seat}"), 1) == 1
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
        keys = {self._key(f"{topic}/{seat}"): seat for seat in others}
        with self._at_the_store():
            self.view.store.set(self._key(f"{topic}/{self.view.seat}"), mine)
            self._await(keys)
            left = self.view.store.multi_get(list(keys)) if keys else []
            return {seat: _text(said) for seat, said in zip(others, left, strict=True)}

    def hear(self, topic: str, mine: str) -> str:
        """What seat 0 says; `mine` if that is this seat. Raises as `exchange` does."""
        key = self._key(topic)
        with self._at_the_store():
            if self.view.seat == 0:
                self.view.store.set(key, mine)
                return mine
            self._await({key: 0})
            return _text(self.view.store.get(key))

    def _key(self, name: str) -> str:
        return self._prefix + name

    def _await(self, seats: Mapping[str, int]) -> None:
        deadline = time.monotonic() + self.view.timeout.total_seconds()
        pause_s = 0.0005
        while seats and not self.view.store.check(list(seats)):
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
        absent = sorted({seat for key, seat in seats.items() if not self.view.store.check([key])})
        return (
            f"seats {absent} of group {self.view.group} did not come to epoch {self.view.epoch} "
            f"within {self.view.timeout.total_seconds():g} s"
        )


def _text(said: bytes) -> str:
    return said.decode(errors="replace")
