# SPDX-License-Identifier: Apache-2.0
"""A record as bytes, for a vault. No pickle, and nothing in it announces more than it holds.

8 bytes   "tmsteps" and the number of the format
16 bytes  xxh3-128 of all that follows
8 bytes   length of the header, little endian
header    JSON of `_Header`
payloads  of all outputs kept whole, one behind the other, in the order of the header
"""

import struct
from collections.abc import Iterator

import msgspec
import torch
import xxhash
from torch import Tensor

from trainmover.errors import ProtocolError
from trainmover.protocol.malformed import MALFORMED
from trainmover.sandbox.binding import Binding
from trainmover.sandbox.moments import Moments
from trainmover.sandbox.record import Entry, Kept, Record
from trainmover.state.tensor_bytes import view_bytes

FORMAT = 1
_NAME = b"tmsteps"
_LENGTH = struct.Struct("<Q")
_DIGEST_AT = len(_NAME) + 1
_LENGTH_AT = _DIGEST_AT + 16
_HEADER_AT = _LENGTH_AT + _LENGTH.size


class _Whole(msgspec.Struct, frozen=True, array_like=True, tag=0):
    bytes: int
    large: bool


class _Moments(msgspec.Struct, frozen=True, array_like=True, tag=1):
    of: Moments


class _Call(msgspec.Struct, frozen=True, array_like=True):
    """`what` is a place in `_Header.whats`; an output that is None is in the base's record."""

    group: int
    seq: int
    what: int
    outputs: tuple[_Whole | _Moments | None, ...]
    source: int
    refused: tuple[str, str] | None = None


class _Header(msgspec.Struct, frozen=True):
    binding: Binding
    rank: int
    steps: int
    trace: str
    signature: str
    base: int | None
    payload_full: int
    held_bytes: int
    whats: list[str]
    calls: list[_Call]
    begun_ns: int = 0


_header_decoder = msgspec.json.Decoder(_Header)


def to_bytes(record: Record) -> bytes:
    """See `from_bytes`."""
    header = msgspec.json.encode(_header_of(record))
    parts: list[bytes | memoryview] = [_LENGTH.pack(len(header)), header, *_payloads(record)]
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    return b"".join([_NAME, bytes([FORMAT]), digest.digest(), *parts])


def bytes_full(record: Record) -> int:
    """What `to_bytes` would take, about, if every output were kept whole."""
    return _HEADER_AT + len(msgspec.json.encode(_header_of(record))) + record.payload_full


def _header_of(record: Record) -> _Header:
    whats: dict[str, int] = {}
    calls = [
        _Call(
            group,
            seq,
            whats.setdefault(entry.what, len(whats)),
            tuple(_described(kept) for kept in entry.outputs),
            entry.source,
            entry.refused,
        )
        for (group, seq), entry in record.entries.items()
    ]
    return _Header(
        record.binding,
        record.rank,
        record.steps,
        record.trace,
        record.signature,
        record.base,
        record.payload_full,
        record.held_bytes,
        list(whats),
        calls,
        record.begun_ns,
    )


def _described(kept: Kept | None) -> _Whole | _Moments | None:
    if kept is None:
        return None
    if isinstance(kept.payload, Moments):
        return _Moments(kept.payload)
    return _Whole(kept.payload.nbytes, kept.large)


def _payloads(record: Record) -> Iterator[memoryview]:
    for entry in record.entries.values():
        for kept in entry.outputs:
            if kept is not None and isinstance(kept.payload, Tensor):
                yield view_bytes(kept.payload)


def from_bytes(data: bytes | bytearray) -> Record:
    """The record that `to_bytes` was given; its payloads lie in `data` if that is a bytearray.

    Raises ProtocolError on any other bytes.
    """
    whole = bytearray(data) if isinstance(data, bytes) else data
    _check(whole)
    length = _LENGTH.unpack_from(whole, _LENGTH_AT)[0]
    payload_at = _HEADER_AT + length
    if payload_at > len(whole):
        raise _no_record("its header is longer than all of it")
    view = memoryview(whole)
    try:
        header = _header_decoder.decode(view[_HEADER_AT:payload_at])
        return _record(header, torch.frombuffer(whole, dtype=torch.uint8)[payload_at:])
    except (*MALFORMED, ValueError, OverflowError) as error:
        raise _no_record(str(error)) from error


def _check(data: bytearray) -> None:
    if len(data) < _HEADER_AT or not data.startswith(_NAME):
        raise _no_record("they do not begin like one")
    if data[len(_NAME)] != FORMAT:
        raise _no_record(f"their format is {data[len(_NAME)]}, this trainmover reads {FORMAT}")
    body = memoryview(data)[_LENGTH_AT:]
    if xxhash.xxh3_128_digest(body) != bytes(data[_DIGEST_AT:_LENGTH_AT]):
        raise _no_record("they were changed or cut short on their way (the checksum differs)")


def _record(header: _Header, payloads: Tensor) -> Record:
    """Raises ValueError for a header that cannot be."""
    entries: dict[tuple[int, int], Entry] = {}
    at = 0
    for call in header.calls:
        outputs: list[Kept | None] = []
        for described in call.outputs:
            kept, at = _kept(described, payloads, at)
            outputs.append(kept)
        if not 0 <= call.what < len(header.whats) or (call.group, call.seq) in entries:
            raise ValueError("a call is named twice or not at all")
        what = header.whats[call.what]
        entries[call.group, call.seq] = Entry(what, tuple(outputs), call.source, call.refused)
    if at != payloads.numel():
        raise ValueError("payloads and header do not fit")
    return Record(
        header.binding,
        header.rank,
        header.steps,
        header.trace,
        header.signature,
        entries,
        header.base,
        header.payload_full,
        header.held_bytes,
        header.begun_ns,
    )


def _kept(
    described: _Whole | _Moments | None, payloads: Tensor, at: int
) -> tuple[Kept | None, int]:
    """An output, and where the next payload begins."""
    match described:
        case None:
            return None, at
        case _Moments(of=moments):
            if not moments.possible:
                raise ValueError("moments that no tensor has")
            return Kept(moments, large=True), at
        case _Whole(bytes=size, large=large):
            if not 0 <= size <= payloads.numel() - at:
                raise ValueError("a payload is missing")
            return Kept(payloads[at : at + size], large), at + size


def _no_record(why: str) -> ProtocolError:
    return ProtocolError(
        f"These bytes are no record of first steps: {why}.",
        means="Nothing was taken from them; the job trains on.",
        do="All processes of a job must run the same version of trainmover.",
    )
