# SPDX-License-Identifier: Apache-2.0
"""Plain attributes of an object of the script, kept as one small object with a state."""

from collections import deque
from typing import Any

import numpy
from torch import Tensor

from trainmover.errors import StateMismatch, UserError
from trainmover.state import encode
from trainmover.state.kinds.filling import Filling

_HOLD = (list, dict, deque, tuple)
_MAY_BE_ONE = (*_HOLD, set, bytearray, Tensor, numpy.ndarray)
_SHARED = ""
"""Beside the names of attributes."""
_DEEPEST, _OBJECTS_MAX = 8, 4096


class Attributes:
    """Some attributes of `owner`, by name.

    Lists, dicts, sets and deques are changed in place, so that whoever else holds them sees it. Two
    that are one object stay one where both are to hold the same. What lies in several of them, as
    an entry of a heap and of a dict, is one again: the state says what is one.
    """

    def __init__(self, owner: object, names: tuple[str, ...]) -> None:
        """Raises UserError if one is missing, or is no plain value."""
        self.owner = owner
        self.names = names
        for name in names:
            _check(owner, name)

    def state_dict(self) -> dict[str, Any]:
        state = {}
        for name in self.names:  # Asked for at every step: a comprehension is one more call.
            state[name] = getattr(self.owner, name)
        if any(map(_is_nested, state.values())) and (shared := _shared_in(state)):
            state[_SHARED] = shared
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        shared = state.get(_SHARED, [])
        state = {name: value for name, value in state.items() if name != _SHARED}
        if state.keys() != set(self.names):
            raise StateMismatch(
                f"The source keeps {sorted(state)} of a {type(self.owner).__name__}, this process "
                f"{sorted(self.names)}.",
                means="This process cannot take the rank.",
                do="Call job.values with the same names wherever the script runs.",
            )
        filling = Filling()
        for name, value in state.items():
            if not filling.filled(getattr(self.owner, name), value):
                setattr(self.owner, name, value)
        for (first, *within), *others in shared:
            value = _at(getattr(self.owner, first), within)
            for name, *path in others:
                setattr(self.owner, name, _with(getattr(self.owner, name), path, value))

    @property
    def tells_what_is_one(self) -> bool:
        """Whether its state says so of all that lies in these values."""
        return _shared_in({name: getattr(self.owner, name) for name in self.names}) is not None

    def put(self, name: str, value: object) -> None:
        """Have that attribute be this object."""
        setattr(self.owner, name, value)


# --- what lies in several -------------------------------------------------------------------------


def _is_nested(value: object) -> bool:
    """By its first entry, the one in the middle and the last: a long history is one of numbers. A
    dict may have anything by any of its names."""
    if not isinstance(value, _HOLD) or not value:
        return False
    if isinstance(value, dict):
        return any(issubclass(kind, _MAY_BE_ONE) for kind in {*map(type, value.values())})
    entries: Any = value
    return any(isinstance(entries[n], _MAY_BE_ONE) for n in (0, len(entries) // 2, -1))


def _shared_in(state: dict[str, Any]) -> list[list[list[Any]]] | None:
    """Paths to each object that lies in several of these values, or twice in one: a name, and
    numbers of entries. Those that are whole values are no such. None: there are too many."""
    found: dict[int, list[list[Any]]] = {}
    waiting: list[tuple[list[Any], Any]] = [([name], value) for name, value in state.items()]
    for path, value in waiting:
        if not isinstance(value, tuple):
            paths = found.setdefault(id(value), [])
            paths.append(path)
            if len(paths) > 1:
                continue
        if isinstance(value, _HOLD) and len(path) < _DEEPEST:
            if len(waiting) + len(value) > _OBJECTS_MAX:
                return None
            entries = value.values() if isinstance(value, dict) else value
            waiting += [
                ([*path, number], entry)
                for number, entry in enumerate(entries)
                if isinstance(entry, _MAY_BE_ONE)
            ]
    several = (paths for paths in found.values() if len(paths) > 1)
    return [paths for paths in several if any(len(path) > 1 for path in paths)]


def _at(value: Any, path: list[int]) -> Any:
    """What lies there."""
    for number in path:
        value = _entries(value)[number]
    return value


def _with(value: Any, path: list[int], entry: object) -> Any:
    """It, with that entry there. Made anew is a tuple only."""
    if not path:
        return entry
    number, *further = path
    new = _with(_entries(value)[number], further, entry)
    if isinstance(value, tuple):
        return (*value[:number], new, *value[number + 1 :])
    value[[*value][number] if isinstance(value, dict) else number] = new
    return value


def _entries(value: Any) -> Any:
    return [*value.values()] if isinstance(value, dict) else value


def _check(owner: object, name: str) -> None:
    of = type(owner).__name__
    if not hasattr(owner, name):
        raise UserError(
            f"job.values cannot keep `{name}`: this {of} has no such attribute.",
            means="It would be lost when this rank moves to another machine.",
            do="Set all attributes first, then call job.values(obj, 'name', ...).",
        )
    value = getattr(owner, name)
    try:
        encode.encode(value)
        setattr(owner, name, value)
    except (UserError, AttributeError, TypeError) as error:
        why = error.happened if isinstance(error, UserError) else str(error)
        raise UserError(
            f"job.values cannot keep `{name}` of a {of}: {why}",
            means="It would be lost when this rank moves to another machine.",
            do="Keep numbers, strings, tensors, and lists, dicts or deques of them; an object with "
            "state_dict() and load_state_dict() is kept by job.track.",
        ) from error
