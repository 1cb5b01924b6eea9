# SPDX-License-Identifier: Apache-2.0
"""Where a generator of random numbers on the CPU lies: for who asks often whether it has drawn."""

import ctypes
import functools
import itertools
import operator
import struct
import sys
from collections.abc import Callable

import torch

from trainmover.asked import Pieces

_COUNTED = 16
"""Bytes at the begin of what is counted by references: who holds it, not what it is."""
_TAIL = struct.Struct("<dddi4xf?3x")
"""The end of its state: normal numbers that are kept back, and whether there are any."""
_address: Callable[[torch.Generator], int] = operator.attrgetter("_cdata")
_is_whole: bool | None = None


def places_of(generator: torch.Generator) -> list[tuple[int, int]] | None:
    """Address and size of all of its memory, as long as it lives; None if that may not be all it is
    made of."""
    global _is_whole
    if _is_whole is None:
        _is_whole = _shows_all(torch.Generator())
    return _lying(generator) if _is_whole else None


def _lying(generator: torch.Generator) -> list[tuple[int, int]] | None:
    address = _address(generator)
    size = _size_at(address)
    return [(address + _COUNTED, size - _COUNTED)] if size > _COUNTED else None


def _size_at(address: int) -> int:
    """Of the piece of memory that begins there; 0: that is not known here."""
    size_of = _size_function()
    return 0 if size_of is None else int(size_of(address))


@functools.cache
def _size_function() -> Callable[[int], int] | None:
    """Return what gives the size of a piece of memory, where the system has it."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        size_of = ctypes.CDLL(None).malloc_usable_size
    except AttributeError:
        return None
    size_of.argtypes, size_of.restype = [ctypes.c_void_p], ctypes.c_size_t
    return size_of


def _shows_all(generator: torch.Generator) -> bool:
    """Whether the words lie in that memory, and each part of the state that is no word shows there:
    it is set to other values, and another memory must be seen each time."""
    places = _lying(generator)
    state = generator.get_state()
    if places is None or state.numel() < _TAIL.size:
        return False
    memory = Pieces(*zip(*places, strict=True))
    data = state.numpy().tobytes()
    words = data[24 : -_TAIL.size]
    every = b"".join(words[at : at + 4] for at in range(0, len(words), 8))
    if not every or every not in memory.read():
        return False
    normals = [(0, 0.5, 0, 1, 0, False), (0, 0.25, 0, 1, 0, False), (0, 0.25, 0, 1, 0.5, True)]
    normals += [(0, 0.25, 0, 1, 0.25, True), (0, 0, 0, 0, 0.25, True), (0, 0, 0, 0, 0, False)]
    seen = [memory.read()]
    for tail in normals:
        other = data[: -_TAIL.size] + _TAIL.pack(*tail)
        generator.set_state(torch.frombuffer(bytearray(other), dtype=torch.uint8))
        seen.append(memory.read())
    return all(one != other for one, other in itertools.pairwise(seen))
