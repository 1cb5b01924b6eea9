# SPDX-License-Identifier: Apache-2.0
"""Where a tensor keeps its version, its address and its form, in memory: read there, hundreds of
them cost what a few calls do. `asked.Words` reads, and asks nobody.

No header of torch is known here. Where things lie is found as this is imported, from a tensor of
which the answers are known; and each tensor that is to be read so is asked in the usual way too, as
it is noted first. Where anything is otherwise, nothing is read so, and torch is asked as ever.
"""

import ctypes
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainmover.asked import Words, is_in_c

_PLAIN = {Tensor, nn.Parameter}
_WORD = struct.Struct("N")
WORD_BYTES = _WORD.size
_VERSION = struct.Struct("I")
_HEAD_BYTES = 176  # Of torch's object: all its fields up to the type of its elements.
_STORAGE_BYTES = 48
_FORM_BEFORE, _FORM_BYTES = 88, 112
"""Sizes and strides stand before the offset in the storage; behind it, count, type and flags."""
_DIMENSIONS = 5  # More are kept elsewhere.
_OFFSET, _ROWS, _COLUMNS = 77_777, 3, 4_111
_UNUSED = {3, 4, 5, 8, 9, 10}  # Sizes and strides of dimensions that a matrix has not.
_PYTHONS = object.__basicsize__
"""Bytes of a Python object before its own: there is the address of C++'s."""


class Layout(NamedTuple):
    """Offsets in bytes. kind: what the object of a dense tensor begins with; storage, version,
    offset: in it; counted: in what `version` leads to; data: in what `storage` leads to."""

    kind: int
    storage: int
    version: int
    offset: int
    counted: int
    data: int


def words_of(tensors: Sequence[Tensor], *, form: bool) -> Words | None:
    """What shows that they were not written to, and lie where they lay; or, with `form`, that they
    lie where they lay, in the same form, whoever has written. None: ask torch.

    The tensors must be kept for as long as the words are.
    """
    layout = LAYOUT
    if layout is None or not all(map(_is_plain, tensors)):
        return None
    first = layout.offset - _FORM_BEFORE if form else layout.offset
    words = Words(
        [id(one) + _PYTHONS for one in tensors],
        [layout.kind, layout.storage, layout.version, layout.counted, layout.data],
        [first, _FORM_BYTES if form else _WORD.size],
        not form,
    )
    if not words.note():
        return None
    if places_in(words, layout.offset - first) != [*map(place_of, tensors)]:
        return None
    if not form and words.versions() != [one._version for one in tensors]:
        return None
    return words


def places_in(words: Words, offset_at: int = 0) -> list[tuple[int, int]]:
    """As they were noted: see `place_of`. offset_at: where in what is compared it stands."""
    offsets = [_WORD.unpack_from(part, offset_at)[0] for part in words.parts()]
    return list(zip(words.addresses(), offsets, strict=True))


def place_of(tensor: Tensor) -> tuple[int, int]:
    """Where its storage lies, and how many elements further it begins."""
    return tensor.untyped_storage().data_ptr(), int(tensor.storage_offset())


def way_to_data(probe: Tensor) -> tuple[int, int] | None:
    """Where in the memory of a tensor the address of its storage stands, and where in that the
    address of what it holds, in bytes. None: elsewhere than where they are looked for.

    probe: any whose memory is not torch's own: of that a storage has the address twice
    """
    storage = probe.untyped_storage()
    inside = words_in(ctypes.string_at(storage._cdata, _STORAGE_BYTES))
    in_head, data = _only(_head(probe), storage._cdata), _only(inside, storage.data_ptr())
    return None if in_head is None or data is None else (in_head, data)


def native_of(value: object) -> int:
    """Where the object of C++ lies that it stands for."""
    return word_at(id(value) + _PYTHONS)


def word_at(address: int) -> int:
    """What stands there. It must be an address."""
    word: int = _WORD.unpack(ctypes.string_at(address, _WORD.size))[0]
    return word


def read_at(address: int, count: int) -> bytes:
    """Bytes of this process; fewer, or none, where there is nothing: so what may be no address is
    read by the system, which says that."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(memory, count, address)
    except (OSError, OverflowError, ValueError):
        return b""
    finally:
        os.close(memory)


def words_in(data: bytes) -> list[int]:
    """Whole words, those of addresses."""
    whole = len(data) // _WORD.size * _WORD.size
    return [word for (word,) in _WORD.iter_unpack(data[:whole])]


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in _PLAIN and tensor.layout == torch.strided and tensor.dim() <= _DIMENSIONS


def _found() -> Layout | None:
    """None: it is not as it is looked for, or this memory must not be read so."""
    if not is_in_c("Words"):
        return None
    count = _ROWS * _COLUMNS
    kept = bytearray(4 * (_OFFSET + count))
    whole = torch.frombuffer(kept, dtype=torch.int32)
    probe = whole[_OFFSET:].view(_ROWS, _COLUMNS)
    if native_of(probe) != probe._cdata:
        return None
    head, other = _head(probe), _head(probe.view(torch.float32))
    way, offset, version = way_to_data(probe), _only(head, _OFFSET), _version_in(probe, head)
    if way is None or offset is None or version is None:
        return None
    form = offset // _WORD.size - 11
    expected = [2, _ROWS, _COLUMNS, 0, 0, 0, _COLUMNS, 1, 0, 0, 0, _OFFSET, count]
    here = [word for at, word in enumerate(head[form : form + 13]) if at not in _UNUSED]
    if here != [word for at, word in enumerate(expected) if at not in _UNUSED]:
        return None
    if head[0] != other[0] or head[form + 13] == other[form + 13]:
        return None
    return Layout(head[0], way[0], version[0], offset, version[1], way[1])


def _version_in(probe: Tensor, head: Sequence[int]) -> tuple[int, int] | None:
    """Where the address of the counter stands, and where in that the version: what counts there as
    the tensor is written to."""
    found = [
        (number * _WORD.size, counted)
        for number, word in enumerate(head)
        for counted in (16, 24)
        if _counts(word + counted, probe)
    ]
    return found[0] if len(found) == 1 else None


def _counts(address: int, probe: Tensor) -> bool:
    for _ in range(3):
        probe.zero_()
        read = read_at(address, _VERSION.size)
        if len(read) < _VERSION.size or _VERSION.unpack(read)[0] != probe._version:
            return False
    return True


def _head(tensor: Tensor) -> list[int]:
    return words_in(ctypes.string_at(tensor._cdata, _HEAD_BYTES))


def _only(words: Sequence[int], value: int) -> int | None:
    """Where it stands, in bytes, if it stands there once."""
    return words.index(value) * _WORD.size if words.count(value) == 1 else None


LAYOUT = _found()
