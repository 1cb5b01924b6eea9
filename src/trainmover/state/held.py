# SPDX-License-Identifier: Apache-2.0
"""What objects hold, without a line of the script's own code: their attributes, their slots, what a
function closes over."""

import threading
from contextlib import suppress
from types import (
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
)
from typing import Any

from trainmover.state.class_caches import cached_by_class


def slots_of(kind: type) -> set[str]:
    """Names of the attributes for which its objects have places of their own."""
    every = [(one, vars(one).get("__slots__", ())) for one in kind.__mro__]
    return {
        _mangled(name, one)
        for one, names in every
        for name in ((names,) if isinstance(names, str) else names)
    }


def _mangled(name: str, kind: type) -> str:
    """As Python has it: `__value` is each class's own."""
    is_private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if is_private else name


def slots_in(value: object) -> dict[str, Any]:
    """What is in these."""
    found = {}
    for name in slots_of(type(value)):
        with suppress(AttributeError):
            found[name] = object.__getattribute__(value, name)
    return found


def held_by(value: object) -> dict[str, Any]:
    """Its attributes, live; {} if it has none of its own."""
    if issubclass(type(value), threading.local):
        return threading.local.__getattribute__(value, "__dict__")  # type: ignore
    slot = _dict_slot(type(value))
    held = None if slot is None else slot.__get__(value)
    return held if type(held) is dict else {}


def all_held_by(value: object) -> dict[str, Any]:
    """A copy of both: its attributes, wherever they are kept."""
    return {**slots_in(value), **held_by(value)}


def closed_over(function: FunctionType) -> dict[str, Any]:
    """What a function closes over, by name, as far as it is there yet."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


@cached_by_class
def _dict_slot(kind: type) -> GetSetDescriptorType | MemberDescriptorType | None:
    """Python's own: a property of that name may do anything."""
    found = next((vars(one)["__dict__"] for one in kind.__mro__ if "__dict__" in vars(one)), None)
    return found if isinstance(found, GetSetDescriptorType | MemberDescriptorType) else None
