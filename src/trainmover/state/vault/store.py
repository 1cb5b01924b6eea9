# SPDX-License-Identifier: Apache-2.0
"""The vault as a value store: no clock, no sockets."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from trainmover.errors import UserError

STEPS_KEPT = 2
"""While step k's record is being put, some rank may still be told to begin again at k - 1."""

_SNAPSHOT = re.compile(r"snapshot/\d+/([0-9]{1,18})")


def snapshot_name(rank: int, step: int) -> str:
    """Under which a rank's snapshot after `step` is kept."""
    return f"snapshot/{rank}/{step}"


def graph_name(rank: int, number: int) -> str:
    """Return the name under which a rank's whole graph is kept, beside the one before it."""
    return f"graph/{rank}/{number % 2}"


class Record(NamedTuple):
    """What a rank needs beside its bulk state.

    step      the next step to run with it
    complete  as the worker says: whether it can stand alone
    """

    step: int
    complete: bool
    data: bytes


class Vault:
    """Records by rank and step, blobs by name, at most `bytes_max` of payload.

    >>> vault = Vault(bytes_max=1000)
    >>> for step in (7, 8, 9):
    ...     vault.put_record(0, step, True, b"state")
    >>> vault.records_held(), vault.bytes_held
    ({0: [8, 9]}, 10)
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._records: dict[int, dict[int, Record]] = {}
        self._blobs: dict[str, bytes | bytearray] = {}
        self._epoch = 0

    def fence(self, epoch: int) -> None:
        """Keep no record any more that a rank of an older epoch puts.

        What a vault holds is counted when members change. A rank that is given up for lost and
        trains on could pass a gate afterwards, on a record that nobody has counted.
        """
        self._epoch = max(self._epoch, epoch)

    def put_record(self, rank: int, step: int, complete: bool, data: bytes, epoch: int = 0) -> bool:
        """Keep it, and of the rank's other records only the one put last. False: too late, see
        `fence`.

        Put last, not highest: after going back to an older step, the older records are the current
        ones. Raises UserError when the vault is full; what it held stays.
        """
        if epoch < self._epoch:
            return False
        held = self._records.get(rank, {})
        others = {s: record for s, record in held.items() if s != step}
        newest = dict(list(others.items())[len(others) - STEPS_KEPT + 1 :]) if others else {}
        freed = _bytes(held) - _bytes(newest)
        self._take(len(data) - freed, f"the record of rank {rank}")
        newest[step] = Record(step, complete, data)
        self._records[rank] = newest
        return True

    def get_record(self, rank: int, step: int) -> Record | None:
        return self._records.get(rank, {}).get(step)

    def records_held(self) -> dict[int, list[int]]:
        """Steps held of each rank, ascending."""
        return {rank: sorted(held) for rank, held in sorted(self._records.items())}

    def put_blob(self, name: str, data: bytes | bytearray) -> None:
        """Keep `data` (not copied), replacing what had the name. Raises UserError when full."""
        self.check_room(name, len(data))
        self._take(len(data) - len(self._blobs.get(name, b"")), f"`{name}`")
        self._blobs[name] = data

    def check_room(self, name: str, size_bytes: int) -> None:
        """Raise UserError if a blob of that size could not be put under `name` now."""
        growth = size_bytes - len(self._blobs.get(name, b""))
        if self.bytes_held + growth > self.bytes_max:
            raise self._full(size_bytes, f"`{name}`")

    def get_blob(self, name: str) -> bytes | bytearray | None:
        return self._blobs.get(name)

    def drop_snapshots(self, before: int) -> None:
        """Forget snapshots of steps before this one."""
        self._drop([name for name, step in self._snapshots() if step < before])

    def drop_snapshots_after(self, step: int) -> None:
        """Forget those of later steps: they are undone."""
        self._drop([name for name, at in self._snapshots() if at > step])

    def clear(self) -> None:
        """Forget everything."""
        self._records.clear()
        self._blobs.clear()
        self.bytes_held = self._epoch = 0

    def _snapshots(self) -> Iterator[tuple[str, int]]:
        """Their names and steps."""
        for name in self._blobs:
            known = _SNAPSHOT.fullmatch(name)
            if known:
                yield name, int(known[1])

    def _drop(self, names: list[str]) -> None:
        for name in names:
            self.bytes_held -= len(self._blobs.pop(name))

    def _take(self, growth: int, what: str) -> None:
        if growth > 0 and self.bytes_held + growth > self.bytes_max:
            raise self._full(growth, what)
        self.bytes_held += growth

    def _full(self, size_bytes: int, what: str) -> UserError:
        return UserError(
            f"The vault cannot keep {what}: {size_bytes} bytes more, "
            f"with {self.bytes_held} of {self.bytes_max} in use.",
            means="A loss of the machine that sent it would not be recoverable from here.",
            do="Give agents more host memory, or track less small state.",
        )


def _bytes(records: dict[int, Record]) -> int:
    return sum(len(record.data) for record in records.values())
