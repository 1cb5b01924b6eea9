# SPDX-License-Identifier: Apache-2.0
"""What a standby sees of its rank before it is needed.

While a run stands in the sandbox as a rank, that rank trains on, and its newest two records are in
a vault. What the rank's script holds goes along with them, as a graph; what it cannot have is named
there (`RankRecord.uncarried`).
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from trainmover.errors import PeerLost, ProtocolError
from trainmover.ids import Rank
from trainmover.protocol.messages import Records
from trainmover.state.vault import VaultClient, graph_name
from trainmover.worker.keep.script_graph import Whole
from trainmover.worker.step.keeper import RankRecord

FIRST_LOOK_S = 2.0
AGAIN_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Between looks; the last from then on. A value that changes rarely is seen some time later."""
_CONNECT_S = 2.0


class Lookout:
    """Fetches the newest records of a rank again and again, in a thread of its own, since a vault
    may be gone or slow, and whoever waits to be bound must not be.

    changed  is notified when there are records that nobody has taken
    whole    the whole graph that the newest record continues
    """

    def __init__(
        self, rank: Rank, places: Records, token: bytes, changed: threading.Condition
    ) -> None:
        self._rank = rank
        self._vaults = list(
            dict.fromkeys(v for stored in places.values() for one in stored for v in one.vaults)
        )
        self._token = token
        self._changed = changed
        self._over = threading.Event()
        self._looked = threading.Event()
        self._seen: Sequence[RankRecord] = ()
        self.whole: Whole | None = None

    def begin(self) -> None:
        """Returns after the first look, or when that takes too long."""
        threading.Thread(target=self._look_on, name="tm-lookout", daemon=True).start()
        self._looked.wait(FIRST_LOOK_S)

    def end(self) -> None:
        """No more looks."""
        self._over.set()

    @property
    def has_seen(self) -> bool:
        """Whether there are records that nobody has taken. Called under `changed`."""
        return bool(self._seen)

    def take(self) -> Sequence[RankRecord]:
        """The newest ones that nobody has taken, the older one first."""
        with self._changed:
            seen, self._seen = self._seen, ()
            return seen

    def _look_on(self) -> None:
        pauses = _pauses()
        while True:
            seen = self._look()
            with self._changed:
                self._seen = seen or self._seen
                self._changed.notify_all()
            self._looked.set()
            if self._over.wait(next(pauses)):
                return

    def _look(self) -> list[RankRecord]:
        """Those of the vault that has the newest one."""
        found: list[list[RankRecord]] = [[]]
        for address in self._vaults:
            try:
                client = VaultClient(address, self._token, connect_timeout_s=_CONNECT_S)
            except PeerLost:
                continue
            try:
                held = client.records_held()
                found.append(_fetched(client, self._rank, held.get(self._rank, [])))
                self._fetch_whole(client, found[-1])
            except (PeerLost, ProtocolError):
                continue
            finally:
                client.close()
        return max(found, key=lambda records: records[-1].step if records else -1)

    def _fetch_whole(self, client: VaultClient, records: Sequence[RankRecord]) -> None:
        number = records[-1].graph.number if records else 0
        known = 0 if self.whole is None else self.whole.number
        if number not in (0, known) and (data := client.get_blob(graph_name(self._rank, number))):
            self.whole = Whole.from_bytes(data)


def pass_of(record: RankRecord) -> list[Any]:
    """Which run through which loop it is from: the loops around have not fetched since."""
    *around, innermost = record.positions
    return [around, innermost[0], record.member]


def _fetched(client: VaultClient, rank: Rank, steps: Sequence[int]) -> list[RankRecord]:
    held = [client.get_record(rank, step) for step in steps]
    return [RankRecord.from_bytes(one.data) for one in held if one is not None]


def _pauses() -> Iterator[float]:
    yield from AGAIN_S
    while True:
        yield AGAIN_S[-1]
