# SPDX-License-Identifier: Apache-2.0
"""What a disk has not taken of a journal, until it does: in memory that outlives its writer.

The descriptor is of a file in memory. A supervisor holds it too, so a controller that dies takes
nothing with it: its successor reads here what the journal lacks.
"""

import errno
import os
import struct
from collections.abc import Iterator

import msgspec

from trainmover.protocol.malformed import MALFORMED
from trainmover.protocol.messages import Columns

STEPS_BYTES_MAX = 256 * 1024 * 1024
"""Of committed steps, which nothing is decided on; what comes then is counted, not kept."""
_LENGTH = struct.Struct(">I")


class Line(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An event or a note, as it stands in `events`."""

    seq: int
    at_us: int
    kind: str
    text: str


class Steps(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """As `append_batches` was given them."""

    batches: list[Columns]
    safe: dict[str, int]


class Cut(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Records that a crash has cut off behind `seq`, in words, until an event tells of them."""

    seq: int
    text: str


Record = Line | Steps | Cut
_encoder = msgspec.msgpack.Encoder()
_decoder: "msgspec.msgpack.Decoder[Record]" = msgspec.msgpack.Decoder(Record)


class Memory:
    """records: oldest first. lost: batches of steps that were too many to be kept."""

    def __init__(self, descriptor: int | None = None) -> None:
        """descriptor: of a predecessor's, whose records are here then; it stays the caller's."""
        self._ours = descriptor is None
        self._file = os.memfd_create("journal") if descriptor is None else descriptor
        self._bytes = 0
        self.lost = 0
        self.records = list(self._read())

    def keep(self, record: Record) -> None:
        """Behind all others. Raises OSError if there is no memory."""
        data = _encoder.encode(record)
        if isinstance(record, Steps) and self._bytes + len(data) > STEPS_BYTES_MAX:
            self.lost += len(record.batches)
            return
        frame = _LENGTH.pack(len(data)) + data
        if os.pwrite(self._file, frame, self._bytes) < len(frame):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._bytes += len(frame)
        self.records.append(record)

    def drop_lines(self, *, up_to: int) -> None:
        """Those that are in the journal: who wrote them there has died before he could `forget`."""
        self.records = [one for one in self.records if not isinstance(one, Line) or one.seq > up_to]
        self.forget(0)

    def forget(self, count: int) -> None:
        """The first ones are in the journal. In the file they stay until the last is."""
        del self.records[:count]
        if not self.records:
            os.ftruncate(self._file, 0)
            self._bytes = 0

    def close(self) -> None:
        if self._ours:
            os.close(self._file)

    def _read(self) -> Iterator[Record]:
        """Up to one that its writer did not finish."""
        whole = os.pread(self._file, os.fstat(self._file).st_size, 0)
        while len(whole) >= self._bytes + _LENGTH.size:
            (length,) = _LENGTH.unpack_from(whole, self._bytes)
            begin = self._bytes + _LENGTH.size
            try:
                record = _decoder.decode(whole[begin : begin + length])
            except MALFORMED:
                return
            self._bytes = begin + length
            yield record
