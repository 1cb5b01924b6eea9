# SPDX-License-Identifier: Apache-2.0
"""A journal in memory, record by record as the real one writes them; a crash may tear its end."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import msgspec

from trainmover.controller.events import EVENTS
from trainmover.controller.state import Job
from trainmover.ids import Rank, Step
from trainmover.journal.damage import check_of
from trainmover.journal.rows import Unequal
from trainmover.protocol.messages import Columns, JobSpec
from trainmover.simulator.happenings import Violation

_encoder = msgspec.json.Encoder()
_decoder: "msgspec.json.Decoder[Any]" = msgspec.json.Decoder(EVENTS)

Record = tuple[int, int, str, str, int]
"""seq, at_us, kind, json, check: a line of `events`."""


class Disk:
    """What survives a controller.

    safe  incarnation of an agent -> how many of its facts it was told are here
    rows  rank and step -> what was committed
    bookmarks  number of an event -> what the controller knew behind it, as bytes
    """

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.records: list[Record] = []
        self.safe: dict[str, int] = {}
        self.rows: dict[tuple[Rank, Step], float] = {}
        self.bookmarks: dict[int, bytes] = {}
        self._lost = 0
        self._marks: list[tuple[int, dict[str, int], list[tuple[Rank, Step]]]] = []

    def append(self, event: EVENTS) -> int:
        """Its number."""
        seq, kind = len(self.records) + 1, type(event).__name__
        text = _encoder.encode(event).decode()
        check = check_of(seq, event.at_us, kind, text)
        self.records.append((seq, event.at_us, kind, text, check))
        return seq

    def append_batches(
        self, batches: Sequence[Columns], safe: Mapping[str, int] | None = None
    ) -> list[Unequal]:
        """Committed steps. Raises a Violation if one is there already with another value."""
        safe = safe or {}
        new: list[tuple[Rank, Step]] = []
        before = {name: self.safe.get(name, 0) for name in safe}
        for rank, rows in chain.from_iterable(batch.each() for batch in batches):
            for row in rows:
                key, value = (rank, row.step), row.values["loss"]
                if key not in self.rows:
                    new.append(key)
                elif repr(self.rows[key]) != repr(value):  # NaN is itself here.
                    raise Violation(f"rank {rank} has committed step {row.step} with two values")
                self.rows[key] = value
        self.safe |= safe
        self._marks.append((len(self.records), before, new))
        return []

    def tear(self, records: int, *, clean: bool) -> None:
        """The newest are lost, with all that was written after them; the first of them in part. Or
        clean: no trace of them is left, but that the host has been started again."""
        left = max(0, len(self.records) - records)
        while self._marks and self._marks[-1][0] > left:
            _, before, new = self._marks.pop()
            self.safe |= before
            for key in new:
                del self.rows[key]
        self.bookmarks = {seq: its for seq, its in self.bookmarks.items() if seq <= left}
        if clean:
            self._lost = len(self.records) - left
            del self.records[left:]
        elif left < len(self.records):
            seq, at_us, kind, text, check = self.records[left]
            self.records[left:] = [(seq, at_us, kind, text[: len(text) // 2], check)]

    def cut(self) -> int:
        """Remove what is damaged at the end, as a take-over does; how many records that was."""
        whole = [r for r in self.records if check_of(*r[:4]) == r[4]]
        torn, self._lost = len(self.records) - len(whole) + self._lost, 0
        self.records = whole
        return torn

    def events(self, after: int = 0) -> Iterator[EVENTS]:
        """As they are read back, from above that number."""
        return (_decoder.decode(text) for _, _, _, text, _ in islice(self.records, after, None))

    def newest(self) -> EVENTS:
        """The last one, as it is read back."""
        event: EVENTS = _decoder.decode(self.records[-1][3])
        return event

    def nothing_yet(self) -> Job:
        """The job before the first event."""
        return Job(spec=self.spec)
