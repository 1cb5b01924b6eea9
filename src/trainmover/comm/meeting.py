"""Where the seats of one group meet in one epoch: each leaves some bytes, all read all of them.

The place is a prefix of the view's store, `epoch/at`. Waiting is ours: we ask again and again,
since a wait inside the store could not be given up, and one that times out there logs a warning and
may resolve names for seconds.

Anybody on the host can write to the store. So where the seats have a secret, each proves what it
leaves, for this topic, seat, group and epoch; what is not proved counts as not there. A stranger
can leave something first, and is passed over; who overwrites what a seat has left costs an epoch.
"""

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from trainmover.comm.communicator import View
from trainmover.comm.failures import Drained
from trainmover.errors import PeerLost, UserError
from trainmover.torch_internals.c10d import PrefixStore, Store

_ASK_AGAIN_S = 0.01
_FOREIGN_S = 5.0
"""How long something that is not a seat's may lie in its place: the seat may be about to come."""
_PROOF_LETTERS = 2 * hashlib.sha256().digest_size


class Meeting:
    """One attempt to meet the other seats of one view. `give_up` ends it from any thread.

    token  the seats' secret; None: they have none, and believe what lies in the store
    """

    def __init__(self, view: View, token: bytes | None = None) -> None:
        self.view = view
        self._token = token
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
            # Who does not know the token cannot know the name, and so not sit down first.
            place = self._proof("seat", view.seat, "") or str(view.seat)
            first = not view.fenced or self.store.add(f"seat/{place}", 1) == 1
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
        seat = self.view.seat
        with self._at_the_store():
            self.store.set(f"{topic}/{seat}", self._proof(topic, seat, mine) + mine)
            return self._read(topic, others)

    def _read(self, topic: str, others: Sequence[int]) -> dict[int, str]:
        left: dict[int, str] = {}
        deadline = time.monotonic() + self.view.timeout.total_seconds()
        until = min(deadline, time.monotonic() + _FOREIGN_S)
        while missing := {f"{topic}/{seat}": seat for seat in others if seat not in left}:
            self._await(missing, deadline)
            for key, seat in missing.items():
                lies = self.store.get(key)
                said = lies[_PROOF_LETTERS if self._token else 0 :].decode(errors="replace")
                proven = (self._proof(topic, seat, said) + said).encode()
                if self._token is None or hmac.compare_digest(proven, lies):
                    left[seat] = said
            if len(left) < len(others):
                if time.monotonic() >= until:
                    raise PeerLost(self._foreign(sorted({*others} - {*left})))
                self._given_up.wait(_ASK_AGAIN_S)
                self.check()
        return left

    def _proof(self, topic: str, seat: int, said: str) -> str:
        """That who knows the token has said it here, and nowhere else; "" without one."""
        if self._token is None:
            return ""
        view = self.view
        words = json.dumps(["meeting", view.group, view.at, view.epoch, topic, seat, said])
        return hmac.new(self._token, words.encode(), hashlib.sha256).hexdigest()

    def hear(self, topic: str, mine: str) -> str:
        """What seat 0 says; `mine` if that is this seat. Raises as `exchange` does."""
        with self._at_the_store():
            if self.view.seat == 0:
                self.store.set(topic, mine)
                return mine
            self._await({topic: 0}, time.monotonic() + self.view.timeout.total_seconds())
            return self.store.get(topic).decode(errors="replace")

    def _await(self, seats: Mapping[str, int], deadline: float) -> None:
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

    def _foreign(self, seats: Sequence[int]) -> str:
        return (
            f"what lies in the store for seats {list(seats)} of group {self.view.group} in epoch "
            f"{self.view.epoch} was not left with this job's token: another process writes there"
        )
