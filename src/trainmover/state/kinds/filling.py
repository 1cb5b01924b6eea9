# SPDX-License-Identifier: Apache-2.0
"""Containers and tensors get the content of others, and stay the objects that they are: so whoever
else holds them sees it too.

What lies in a container stays as well where it can. What holds the same is the same object still,
also where it has moved, as in a deque to which one was appended; what is at its old place, and
holds something else, is filled in turn. Of a dict in which `old` is what was `new` a moment ago,
nothing is written to what others hold by the other name.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy
import torch
from torch import Tensor

from trainmover.errors import UserError
from trainmover.state import encode, sets
from trainmover.state.tensor_bytes import extent_of, flat_bytes, is_plain

_MAY_CHANGE = (list, dict, set, deque, tuple, bytearray, Tensor, numpy.ndarray)
_ABSENT: Any = object()


def hold_the_same(value: object, other: object) -> bool:
    """Bit for bit; not what cannot be sent."""
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        return _are_same(value, other)
    try:
        return encode.encode(value) == encode.encode(other)
    except UserError:
        return False


def _are_same(one: Tensor, other: Tensor) -> bool:
    """NaN is equal to itself here."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not (is_plain(one) and is_plain(other)):
        return False
    return torch.equal(flat_bytes(one), flat_bytes(other).to(one.device))


class Filling:
    """Of all that one state brings. What has its content is not written to again by another name
    that it has here: `newest` may be the last of `rows` here, and none of them there."""

    def __init__(self, apart: Iterable[Tensor] = ()) -> None:
        """apart: what has its content already"""
        self._settled = set[int]()
        self._extents: list[tuple[int, int]] = []
        for one in apart:
            self._settle(one)

    def put(self, part: object, name: str, value: Any) -> None:
        """Have an attribute hold this."""
        if not self.filled(vars(part).get(name, _ABSENT), value):
            setattr(part, name, value)

    def filled(self, held: Any, value: Any) -> bool:
        """Whether what is there could take the content of `value`, as collections and tensors of
        the same form do."""
        if held is value or type(held) is not type(value):
            return held is value
        if not isinstance(held, _MAY_CHANGE):
            return False
        if self._is_settled(held) or isinstance(held, tuple | bytearray):
            return hold_the_same(held, value)
        done = self._fill(held, value)
        if done:
            self._settle(held)
        return done

    def _fill(self, held: Any, value: Any) -> bool:
        if isinstance(held, dict):
            entries = self._with_own(held, value)
            held.clear()
            held.update(entries)
        elif isinstance(held, set):
            sets.put_in(held, sets.content_of(value))
        elif isinstance(held, list | deque):
            if getattr(held, "maxlen", None) != getattr(value, "maxlen", None):
                return False
            entries = self._with_own(dict(enumerate(held)), dict(enumerate(value)))
            held.clear()
            held.extend(entries.values())
        else:
            return hold_the_same(held, value) or _memory_filled(held, value)
        return True

    def _with_own(self, held: Mapping[Any, Any], value: Mapping[Any, Any]) -> dict[Any, Any]:
        """The entries of `value`, with objects of `held` in their places."""
        wanted = {key: one for key, one in value.items() if isinstance(one, _MAY_CHANGE)}
        if not wanted:
            return {**value}
        left = {key: one for key, one in held.items() if isinstance(one, _MAY_CHANGE)}
        found: dict[Any, Any] = {}
        for key in [k for k in wanted if k in left and hold_the_same(left[k], wanted[k])]:
            found[key] = left.pop(key)
            del wanted[key]
        for key, old in _moved(left, wanted):
            found[key] = left.pop(old)
            del wanted[key]
        for one in found.values():
            self._settle(one)
        for key, one in wanted.items():
            if key in left and self.filled(left[key], one):
                found[key] = left[key]
        return {key: found.get(key, one) for key, one in value.items()}

    def _settle(self, value: Any) -> None:
        """With what lies in it."""
        if isinstance(value, Tensor):
            if (extent := extent_of(value)) is not None:
                self._extents.append(extent)
        elif isinstance(value, _MAY_CHANGE) and id(value) not in self._settled:
            self._settled.add(id(value))
            if not isinstance(value, set | bytearray | numpy.ndarray):
                for one in value.values() if isinstance(value, dict) else value:
                    self._settle(one)

    def _is_settled(self, value: Any) -> bool:
        if not isinstance(value, Tensor):
            return id(value) in self._settled
        extent = extent_of(value)
        return extent is not None and any(
            start < extent[1] and extent[0] < end for start, end in self._extents
        )


def filled(held: Any, value: Any) -> bool:
    """The same of one value."""
    return Filling().filled(held, value)


def _moved(left: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """Keys of what is wanted, each with the key of one that holds the same."""
    places: dict[tuple[type, bytes], list[Any]] = {}
    for key, one in left.items() if wanted else ():
        if data := _told(one):
            places.setdefault((type(one), data), []).append(key)
    return [
        (key, its.pop(0))
        for key, one in wanted.items()
        if (data := _told(one)) and (its := places.get((type(one), data)))
    ]


def _told(value: object) -> bytes:
    try:
        return encode.encode(value)
    except UserError:
        return b""


def _memory_filled(held: Any, value: Any) -> bool:
    if held.shape != value.shape or held.dtype != value.dtype:
        return False
    if isinstance(held, numpy.ndarray):
        if held.flags.writeable:
            held[...] = value
        return bool(held.flags.writeable)
    if held.requires_grad:
        return False
    with torch.no_grad():
        held.copy_(value)
    return True
