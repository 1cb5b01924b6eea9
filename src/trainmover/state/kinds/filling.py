"""Containers and tensors get the content of others, and stay the objects that they are: so whoever
else holds them sees it too.

What lies in a container stays as well where it can. What holds the same is the same object still,
also where it has moved, as in a deque to which one was appended; what is at its old place, and
holds something else, is filled in turn. Of a dict in which `old` is what was `new` a moment ago,
nothing is written to what others hold by the other name.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from trainmover.errors import UserError
from trainmover.state import encode, sets
from trainmover.state.tensor_bytes import flat_bytes, is_plain

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


def filled(held: Any, value: Any) -> bool:
    """Whether what is there could take the content of `value`, as collections and tensors of the
    same form do."""
    if held is value or type(held) is not type(value):
        return held is value
    if isinstance(held, dict):
        entries = _with_own(held, value)
        held.clear()
        held.update(entries)
    elif isinstance(held, set):
        sets.put_in(held, sets.content_of(value))
    elif isinstance(held, list | deque):
        if getattr(held, "maxlen", None) != getattr(value, "maxlen", None):
            return False
        entries = _with_own(dict(enumerate(held)), dict(enumerate(value)))
        held.clear()
        held.extend(entries.values())
    elif isinstance(held, Tensor | numpy.ndarray):
        return _memory_filled(held, value)
    else:
        return False
    return True


def put_attribute(part: object, name: str, value: Any, apart: Sequence[Tensor] = ()) -> None:
    """Have it hold this; see `filled`. apart: memory that is not to be written to by this name: a
    tensor that shows it, and is to hold something else, is one of its own by then"""
    held = vars(part).get(name, _ABSENT)
    if isinstance(held, Tensor) and isinstance(value, Tensor) and hold_the_same(held, value):
        return
    if shows(held, apart) or not filled(held, value):
        setattr(part, name, value)


def shows(value: object, apart: Sequence[Tensor]) -> bool:
    """Whether it is a tensor that lies in the memory of one of these."""
    if not isinstance(value, Tensor):
        return False
    at = _lies_at(value)
    return bool(at) and any(at == _lies_at(one) for one in apart)


def _lies_at(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # As of a sparse one, which has several.
        return 0


def _with_own(held: Mapping[Any, Any], value: Mapping[Any, Any]) -> dict[Any, Any]:
    """The entries of `value`, with objects of `held` in their places."""
    wanted = {key: one for key, one in value.items() if isinstance(one, _MAY_CHANGE)}
    if not wanted:
        return {**value}
    left = {key: one for key, one in held.items() if isinstance(one, _MAY_CHANGE)}
    found: dict[Any, Any] = {}
    for key in [key for key in wanted if key in left and hold_the_same(left[key], wanted[key])]:
        found[key] = left.pop(key)
        del wanted[key]
    for key, old in _moved(left, wanted):
        found[key] = left.pop(old)
        del wanted[key]
    for key, one in wanted.items():
        if key in left and filled(left[key], one):
            found[key] = left[key]
    return {key: found.get(key, one) for key, one in value.items()}


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
