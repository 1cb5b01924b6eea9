# SPDX-License-Identifier: Apache-2.0
"""What lies in objects and containers, and may change there; none of the script's code is run."""

import array
from collections import deque
from collections.abc import Mapping
from types import FunctionType
from typing import Any

import numpy
from torch import Tensor, nn

from trainmover.state.script.code.handed import ANY
from trainmover.state.script.code.scopes import Source
from trainmover.state.script.things.libraries import is_like_array
from trainmover.state.script.values import PLAIN
from trainmover.torch_internals.modules import TABLES

CONTAINERS = (list, tuple, deque, dict, set, frozenset)
LARGE = 512
OF_OPTIMIZERS = frozenset({"param_groups", "state"})
"""What is tracked of an optimizer; of one that is not, `Untracked` reads it."""


def entries_of(container: Any) -> list[Any]:
    """Of a container, or of an object of a class made out of one."""
    kind = type(container)
    if issubclass(kind, dict):
        return list(dict.values(container))
    base = next(one for one in CONTAINERS if issubclass(kind, one))
    return list(base.__iter__(container))


def keys_of(container: Any) -> list[Any]:
    """Of a dict, but for plain ones."""
    keys = dict.keys(container) if issubclass(type(container), dict) else ()
    return [key for key in keys if type(key) not in PLAIN]


def held_in(container: Any) -> list[Any]:
    return [*entries_of(container), *keys_of(container)]


def function_in(value: object) -> object | None:
    """A function, or what is in a method or a property of a class."""
    kind = type(value)
    if kind in (staticmethod, classmethod):
        return value.__func__  # type: ignore[attr-defined, no-any-return]
    if kind is property:
        return value.fget  # type: ignore[attr-defined, no-any-return]
    return value if kind is FunctionType else None


def flattened(state: Any, depth: int) -> list[tuple[Any, Any]]:
    """Names and values of a state_dict(), and of dicts in it."""
    if not issubclass(type(state), dict):
        return []
    inner = [one for value in state.values() if depth for one in flattened(value, depth - 1)]
    return [*state.items(), *inner]


def changes_in_place(value: object) -> bool:
    """Whether it is a container, or memory, and is not trained; or a tuple of such."""
    kind = type(value)
    if issubclass(kind, nn.Parameter) or kind is frozenset:
        return False
    if isinstance(value, tuple) and kind is tuple:
        return any(map(changes_in_place, value))
    memory = (Tensor, numpy.ndarray, bytearray, array.array)
    return issubclass(kind, (*CONTAINERS, *memory)) or is_like_array(kind)


def is_large(value: object) -> bool:
    """Whether so much lies in a container, and in those in it, that to copy it takes long."""
    left, waiting = LARGE, [value]
    while waiting:
        one = waiting.pop()
        if issubclass(type(one), CONTAINERS):
            entries = entries_of(one)
            left -= len(entries)
            if left < 0:
                return True
            waiting += entries
    return False


def is_trained(value: Any) -> bool:
    """A tensor that is no Parameter, as the temperature that an optimizer learns: only torch's own
    code stores to it."""
    is_tensor = issubclass(type(value), Tensor) and not issubclass(type(value), nn.Parameter)
    return bool(is_tensor and value.requires_grad and value.is_leaf)


def is_handed(source: Source, name: object) -> bool:
    """Whether objects of others may have what an attribute of that name holds."""
    return name in source.handed or ANY in source.handed


def handed_on(source: Source, held: Mapping[str, Any]) -> set[str]:
    """Attributes of an object that others may change in place, as far as they can be filled where
    they are: tensors, and containers of plain values. Tensors in a list may be those of a layer."""
    names = source.handed.keys() & held.keys() - source.attributes.keys() - TABLES - OF_OPTIMIZERS
    return {
        name
        for name in names
        if changes_in_place(held[name]) and (isinstance(held[name], Tensor) or _is_flat(held[name]))
    }


def is_looked_at(source: Source, name: str, value: object) -> bool:
    """An attribute that is a variable by itself, or tells the time."""
    if name in source.attributes or f".{name}" in source.clocks:
        return True
    return is_handed(source, name) and changes_in_place(value)


def _is_flat(value: object) -> bool:
    return type(value) in (list, dict, set, deque) and {*map(type, entries_of(value))} <= PLAIN
