# SPDX-License-Identifier: Apache-2.0
"""Kept values and attributes lie in memory as they do on the rank whose place is taken.

Each has a value of its own by now: which of them are one, and in which order a tensor lies, may
hang on what step was the last. All else is decided by the script: see `arrangement`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainmover.state.arrangement import Arrangement
from trainmover.state.items import HasState
from trainmover.state.kinds import values
from trainmover.state.kinds.filling import hold_the_same
from trainmover.state.kinds.modules import attributes

_DEPTH_MAX = 6


class _Place(NamedTuple):
    """Where a value lies. put: has another one lie there"""

    value: Any
    put: Callable[[Any], object]


def rearrange(objects: Iterable[tuple[str, HasState]], theirs: Arrangement) -> None:
    """What is one object there becomes one here, and tensors lie in the same order."""
    places = dict(_places(objects))
    for path, order in theirs.strides.items():
        if path in places and isinstance(places[path].value, Tensor):
            places[path].put(_lying(places[path].value, order))
    places = dict(_places(objects)) if theirs.strides else places
    for group in (*theirs.objects, *theirs.memory):
        known = [places[path] for path in group if path in places]
        if len(known) == len(group):
            first, *others = known
            for one in others:
                if one.value is not first.value and hold_the_same(one.value, first.value):
                    one.put(first.value)


def _places(objects: Iterable[tuple[str, HasState]]) -> Iterator[tuple[str, _Place]]:
    for name, obj in objects:
        if isinstance(obj, values.Attributes | attributes.Attributes):
            for key, value in obj.state_dict().items():
                if key:
                    yield from _inside(f"{name}.{key}", value, partial(obj.put, key), 0)


def _inside(
    path: str, value: Any, put: Callable[[Any], object], depth: int
) -> Iterator[tuple[str, _Place]]:
    yield path, _Place(value, put)
    if depth < _DEPTH_MAX and isinstance(value, dict | list | deque):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in entries:
            if isinstance(entry, dict | list | deque | set | bytearray | Tensor):
                put = partial(value.__setitem__, key)
                yield from _inside(f"{path}.{key}", entry, put, depth + 1)


def _lying(tensor: Tensor, order: list[int]) -> Tensor:
    """An equal one, of which the dimensions lie in that order."""
    if len(order) != tensor.dim():
        return tensor
    back = [order.index(dim) for dim in range(tensor.dim())]
    return tensor.permute(order).clone(memory_format=torch.contiguous_format).permute(back)
