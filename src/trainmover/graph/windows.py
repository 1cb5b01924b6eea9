# SPDX-License-Identifier: Apache-2.0
"""Windows of memory in which changes of arrays and of random generators show.

A window is an address and a size. Where the layout of a type is not as it is looked for here, it
has no windows, and its objects are read again at each look.
"""

import functools
import io
import random
import sys
import types
import weakref
from collections.abc import Generator
from typing import Any

import numpy
import torch

from trainmover.graph.kinds.iterators import SEQUENCES
from trainmover.state.class_caches import cached_by_class
from trainmover.torch_internals.generators import places_of
from trainmover.torch_internals.memory import WORD_BYTES, word_at
from trainmover.torch_internals.windows import Window

_HEAD = object.__basicsize__
_IS_CPYTHON = sys.implementation.name == "cpython"
_RANDOM: Any = random.Random.__base__
_WORDS = 625
"""Words of a Mersenne Twister, and the place in them."""
_DRAWS = 5


def own_memory(obj: Any, cls: Any) -> Window:
    """Return the fields of an object that its class `cls`, written in C, has."""
    return id(obj) + _HEAD, cls.__basicsize__ - _HEAD


def windows_of_array(array: Any) -> list[Window] | None:
    """Return the windows of an array, without its content."""
    if not _knows_arrays():
        return None
    dimensions, strides = _forms_at(array)
    size = array.ndim * WORD_BYTES
    form = [(dimensions, size), (strides, size)] if size else []
    return [own_memory(array, numpy.ndarray), *form]


def _forms_at(array: Any) -> tuple[int, int]:
    at = id(array) + _HEAD + 2 * WORD_BYTES
    return word_at(at), word_at(at + WORD_BYTES)


@functools.cache
def _knows_arrays() -> bool:
    """Tell whether arrays have data, count of dimensions, dimensions and strides where they had."""
    probe = numpy.zeros((7, 11), numpy.int16)[:, ::2]
    at = id(probe) + _HEAD
    if not _IS_CPYTHON or word_at(at) != probe.ctypes.data:
        return False
    if word_at(at + WORD_BYTES) & 0xFFFFFFFF != probe.ndim:
        return False
    for place, expected in zip(_forms_at(probe), (probe.shape, probe.strides), strict=True):
        if tuple(word_at(place + n * WORD_BYTES) for n in range(probe.ndim)) != expected:
            return False
    return True


def windows_of_weakref(weak: "weakref.ref[Any]") -> list[Window] | None:
    """Return the windows of a weak reference: what it refers to, or None."""
    at = id(weak) + _HEAD
    if not _IS_CPYTHON or type(weak) is not weakref.ref or word_at(at) != id(weak()):
        return None
    return [(at, WORD_BYTES)]


def windows_of_text_writer(stream: io.TextIOWrapper) -> list[Window] | None:
    """Return the windows of a stream that only writes, with those below it: whether it is open, and
    what it may do. Others have none."""
    layers: list[Any] = [stream]
    try:
        layers.append(stream.buffer)
        if type(layers[1]) is io.BufferedWriter:
            layers.append(layers[1].raw)
    except (AttributeError, ValueError):
        return None
    if not _IS_CPYTHON or type(layers[-1]) is not io.FileIO:
        return None
    return [own_memory(one, type(one)) for one in layers]


def windows_of_iterator(iterator: Any) -> list[Window] | None:
    """Return the windows of an index into a sequence; other iterators have none."""
    if not _IS_CPYTHON or type(iterator) not in SEQUENCES:
        return None
    return [own_memory(iterator, type(iterator))]


def windows_of_generator(generator: Any) -> list[Window] | None:
    """Return the windows of a generator: its frame lies in it. Cells are variables elsewhere."""
    code = generator.gi_code
    if not _has_frame_inside() or code.co_cellvars or code.co_freevars:
        return None
    return [_whole(generator)]


def _whole(generator: Any) -> Window:
    return id(generator) + _HEAD, generator.__sizeof__() - _HEAD


@functools.cache
def _has_frame_inside() -> bool:
    """Tell whether a generator's place and variables show in its own memory."""
    if not _IS_CPYTHON or "__sizeof__" not in vars(types.GeneratorType):
        return False

    def probe() -> Generator[None, None, None]:
        value = object()
        yield
        value = object()
        yield
        yield
        del value

    made: Any = probe()
    seen = set()
    held = []  # An address that is free again may be given to the next value.
    for _ in range(3):
        next(made)
        held += made.gi_frame.f_locals.values()
        seen.add(_bytes_of(*_whole(made)))
    return len(seen) == len(held)


def windows_of_torch(generator: torch.Generator) -> list[Window] | None:
    """Return the windows of torch's generator on the CPU."""
    places = places_of(generator) if generator.device.type == "cpu" else None
    return None if places is None else [own_memory(generator, torch.Generator), *places]


def windows_of_random(generator: random.Random) -> list[Window] | None:
    """Return the windows of Python's generator; what it keeps back is an attribute."""
    fits = 0 <= _RANDOM.__basicsize__ - _HEAD - 4 * _WORDS < WORD_BYTES
    return [own_memory(generator, _RANDOM)] if _IS_CPYTHON and fits else None


def windows_of_bits(generator: Any) -> list[Window] | None:
    """Return the windows of a bit generator of numpy's."""
    cls: Any = type(generator)
    return [own_memory(generator, cls)] if _lies_in_object(cls) else None


def windows_of_random_state(state: Any) -> list[Window] | None:
    """Return the windows of a `RandomState`: its own, with what it keeps back, and its words."""
    bits = windows_of_bits(state._bit_generator)
    if type(state) is not numpy.random.RandomState or bits is None:
        return None
    return [own_memory(state, type(state)), *bits]


@cached_by_class
def _lies_in_object(cls: Any) -> bool:
    """Tell whether each draw shows in the fields of a bit generator itself."""
    if not _IS_CPYTHON or cls.__module__.partition(".")[0] != "numpy":
        return False
    made = cls(0)
    start, size = own_memory(made, cls)
    if not start <= made.ctypes.state_address < start + size:
        return False
    seen = {_bytes_of(start, size)}
    drawn = numpy.random.Generator(made)
    for _ in range(_DRAWS):
        made.random_raw()
        seen.add(_bytes_of(start, size))
        drawn.integers(9, dtype=numpy.uint32)
        seen.add(_bytes_of(start, size))
    return len(seen) == 1 + 2 * _DRAWS


def _bytes_of(start: int, size: int) -> tuple[int, ...]:
    return tuple(word_at(start + at) for at in range(0, size - WORD_BYTES + 1, WORD_BYTES))
