# SPDX-License-Identifier: Apache-2.0
"""A small object is given its state by its own load_state_dict().

That mostly puts new lists, dicts and tensors in the place of the old ones, for which the script may
have names: `base_lrs = schedule.base_lrs`. So an object that has the state already is left alone,
and of any other the old ones come back into their places, with the content of the new. Afterwards
it says whether it has the state: one that adds to what is there, as `counts.update(...)` does, is
right for a new object only, so it is emptied first.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
from torch import Tensor, nn
from torch.optim import Optimizer

from trainmover.errors import StateMismatch
from trainmover.state import encode
from trainmover.state.items import HasState
from trainmover.state.kinds.filling import Filling

_MAY_CHANGE = (list, dict, set, deque, Tensor, numpy.ndarray)


def load(name: str, obj: HasState, data: bytes) -> None:
    """Nothing is done where it has that state. See `give`."""
    if encode.encode(obj.state_dict()) != data:
        give(name, obj, data)


def give(name: str, obj: HasState, data: bytes) -> None:
    """name: by which it is tracked. Raises StateMismatch if it has another state behind that."""
    with _staying(obj):
        obj.load_state_dict(encode.decode(data))
    if _has(obj, data):
        return
    with _staying(obj), _emptied(obj):
        obj.load_state_dict(encode.decode(data))
    if not _has(obj, data):
        raise StateMismatch(
            f"`{name}` has another state than the one that its load_state_dict() was given: "
            f"state_dict() of a {type(obj).__name__} says so.",
            means="It would go on with other values than it had: its state cannot be put back, nor "
            "taken by another machine.",
            do="Let load_state_dict() set all that state_dict() gives, also on an object that has "
            "been used: clear what is there before anything is added.",
        )


def _has(obj: HasState, data: bytes) -> bool:
    """Whether it has that state, as far as can be told: one may say another each time."""
    now = encode.encode(obj.state_dict())
    return _is_as(now, data) or not _is_as(encode.encode(obj.state_dict()), now)


@contextmanager
def _emptied(obj: HasState) -> Iterator[None]:
    """As new: its containers are empty, and get their content back where nothing comes instead."""
    held: dict[str, Any] = getattr(obj, "__dict__", {})
    every = [one for one in held.values() if isinstance(one, dict | list | set | deque)]
    before = [(one, one.copy()) for one in every if one]
    for one, _ in before:
        one.clear()
    yield
    for one, content in before:
        if not one:
            (one.extend if isinstance(one, list | deque) else one.update)(content)


def _is_as(one: bytes, other: bytes) -> bool:
    """Whatever the order in which dicts and sets have their entries."""
    return one == other or _ordered(one) == _ordered(other)


def _ordered(data: bytes) -> tuple[bytes, list[bytes]]:
    structure, tensors = encode.split(encode.decode(data), canonical=True)
    return structure, [encode.encode(one) for one in tensors]


@contextmanager
def _staying(obj: HasState) -> Iterator[None]:
    """What its attributes hold is there still behind this, with the content of what came instead:
    also parameter groups of an optimizer that it wraps."""
    if isinstance(obj, nn.Module | Optimizer):
        yield
        return
    held: dict[str, Any] = getattr(obj, "__dict__", {})
    before = {name: one for name, one in held.items() if isinstance(one, _MAY_CHANGE)}
    wrapped = [one for one in held.values() if isinstance(one, Optimizer)]
    groups = [(one, one.param_groups, [*one.param_groups]) for one in wrapped]
    yield
    filling = Filling()
    for name, old in before.items():
        new = held.get(name)
        if new is not old and filling.filled(old, new):
            held[name] = old
    for optimizer, every, old_ones in groups:
        _put_groups(optimizer, every, old_ones)


def _put_groups(
    optimizer: Optimizer, every: list[dict[str, Any]], old_ones: list[dict[str, Any]]
) -> None:
    """Into the dicts that there were, in the list that there was."""
    new_ones = [*optimizer.param_groups]
    if len(old_ones) != len(new_ones):
        return
    for old, new in zip(old_ones, new_ones, strict=True):
        if old is not new:
            content = {**new}
            old.clear()
            old.update(content)
    every[:] = old_ones
    optimizer.param_groups = every
