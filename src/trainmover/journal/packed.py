# SPDX-License-Identifier: Apache-2.0
"""What neighbouring ranks have committed in one step, as few bytes. Pure.

A block is `BLOCK` ranks. Those of them that report the same names in the same epoch, which is all
of them but where members change, are one group: a bit for each rank, when the first of them
committed and how much later each, and its values: four bytes each if none of them loses a bit by
that, as what comes of float32, and eight otherwise.

    crc | [[epoch, names, bits of ranks, at_us, later by, values], ...]

A thousand ranks that report one number each take 7 to 12 KB a step, as rows of text it were 50.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator

import msgspec

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Values

BLOCK = 64
NO_VALUES: Values = ((), b"")
_CHECK = struct.Struct("<I")
_DOUBLE_BYTES, _FLOAT_BYTES = 8, 4
_WIDTHS = {1: "B", 2: "H", 4: "I", 8: "Q"}

Kept = tuple[Epoch, int, Values]
"""What is kept of one row: epoch, at_us, values."""
Block = dict[int, Kept]
"""By rank, counted from the first of the block."""


class _Group(msgspec.Struct, frozen=True, array_like=True):
    epoch: Epoch
    names: tuple[str, ...]
    ranks: int
    at_us: int
    later: bytes
    values: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[_Group])


def place_of(step: Step, rank: Rank) -> int:
    """Of the block that a row is in, among all blocks: by step, then by rank.

    >>> place_of(3, 0) < place_of(3, 64) < place_of(4, 0)
    True
    >>> step_at(place_of(3, 70)), first_rank_at(place_of(3, 70))
    (3, 64)
    """
    return (step << _BLOCK_BITS) | (rank // BLOCK)


def step_at(place: int) -> Step:
    return Step(place >> _BLOCK_BITS)


def first_rank_at(place: int) -> Rank:
    return Rank((place & (1 << _BLOCK_BITS) - 1) * BLOCK)


_BLOCK_BITS = 20
"""Blocks that a step may have; all that 63 bits leave is for steps."""


def packed(block: Block) -> bytes:
    """As it is kept."""
    alike: dict[tuple[Epoch, tuple[str, ...]], list[int]] = {}
    for at in sorted(block):
        epoch, _, (names, _) = block[at]
        alike.setdefault((epoch, names), []).append(at)
    groups = [_group(epoch, names, ranks, block) for (epoch, names), ranks in alike.items()]
    data = _encoder.encode(groups)
    return _CHECK.pack(zlib.crc32(data)) + data


def _group(epoch: Epoch, names: tuple[str, ...], ranks: list[int], block: Block) -> _Group:
    times = [block[at][1] for at in ranks]
    first = min(times)
    return _Group(
        epoch=epoch,
        names=names,
        ranks=sum(1 << at for at in ranks),
        at_us=first,
        later=_integers([time - first for time in times]),
        values=_shortest(b"".join([block[at][2][1] for at in ranks])),
    )


def _integers(numbers: list[int]) -> bytes:
    """As narrow as the largest of them allows; nothing if all are zero."""
    most = max(numbers)
    if most == 0:
        return b""
    width = next(width for width in _WIDTHS if most < 1 << 8 * width)
    return struct.pack(f"<{len(numbers)}{_WIDTHS[width]}", *numbers)


def _shortest(doubles: bytes) -> bytes:
    """The same numbers as floats, if that is the same to the bit."""
    count = len(doubles) // _DOUBLE_BYTES
    try:
        floats = struct.pack(f"<{count}f", *struct.unpack(f"<{count}d", doubles))
    except OverflowError:
        return doubles
    return floats if _as_doubles(floats) == doubles else doubles


def _as_doubles(floats: bytes) -> bytes:
    count = len(floats) // _FLOAT_BYTES
    return struct.pack(f"<{count}d", *struct.unpack(f"<{count}f", floats))


def unpacked(data: bytes) -> Block:
    """Raises ValueError, or as msgspec does, if it is damaged."""
    (check,) = _CHECK.unpack(data[: _CHECK.size].ljust(_CHECK.size, b"\0"))
    if check != zlib.crc32(data[_CHECK.size :]):
        raise ValueError("committed steps are damaged")
    block: Block = {}
    for group in _decoder.decode(data[_CHECK.size :]):
        block.update(_rows_of(group))
    return block


def _rows_of(group: _Group) -> Iterator[tuple[int, Kept]]:
    ranks = list(_bits(group.ranks))
    count, numbers = len(ranks), len(ranks) * len(group.names)
    values = group.values
    if len(values) == numbers * _FLOAT_BYTES and numbers:
        values = _as_doubles(values)
    later = _numbers(group.later, count)
    if len(values) != numbers * _DOUBLE_BYTES or len(later) != count:
        raise ValueError("committed steps do not fit together")
    size = len(group.names) * _DOUBLE_BYTES
    for index, at in enumerate(ranks):
        its = values[index * size : (index + 1) * size]
        yield at, (group.epoch, group.at_us + later[index], (group.names, its))


def _numbers(data: bytes, count: int) -> tuple[int, ...]:
    if not data:
        return (0,) * count
    code = _WIDTHS.get(len(data) // max(count, 1))
    return struct.unpack(f"<{count}{code}", data) if code and len(data) % count == 0 else ()


def _bits(ranks: int) -> Iterable[int]:
    return (at for at in range(ranks.bit_length()) if ranks >> at & 1)
