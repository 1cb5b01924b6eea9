# SPDX-License-Identifier: Apache-2.0
"""What a step asks of many objects at once: whether any answers otherwise than it did, and what
lies in memory that was looked at before.

Every step asks hundreds of tensors and modules the same few questions, and mostly hears what it has
heard. In Python each answer costs a call, and waits for memory by itself; the extension asks all in
one call. Both give the same, so an installation without the extension is only slower.

A question is an attribute or a method as its class has it (`Tensor.requires_grad`, not that of a
tensor), or a function of the object. What answers is compared as Python compares it.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from importlib import import_module
from operator import attrgetter, is_
from types import GetSetDescriptorType
from typing import TYPE_CHECKING, Any

from trainmover.communicators import native_is_built

_END = object()


class PlainAnswers:
    """In Python; see `_native.pyi` for the words."""

    def __init__(self, *questions: Any) -> None:
        self._questions = list(map(_function, questions))
        self._noted: list[list[Any]] | None = None

    def note(self, objects: list[Any]) -> None:
        self._noted = None
        self._noted = self._asked(objects)

    def same(self, objects: list[Any]) -> bool:
        return self._noted is not None and self._asked(objects) == self._noted

    def noted(self, question: int) -> list[Any]:
        return [] if self._noted is None else list(self._noted[question])

    def _asked(self, objects: list[Any]) -> list[list[Any]]:
        return [list(map(question, objects)) for question in self._questions]


class PlainPieces:
    """In Python; see `_native.pyi` for the words."""

    def __init__(self, addresses: Sequence[int], sizes: Sequence[int]) -> None:
        both = zip(addresses, sizes, strict=True)
        self._parts = [(ctypes.c_char * size).from_address(at) for at, size in both]
        self._newest = b""

    def read(self) -> bytes:
        now = b"".join(self._parts)
        if now != self._newest:
            self._newest = now
        return self._newest


class PlainStored:
    """In Python; see `_native.pyi` for the words."""

    def __init__(self, name: str) -> None:
        self._value_of = attrgetter(name)
        self._objects: list[Any] = []
        self._values: list[Any] = []

    def note(self, objects: list[Any]) -> None:
        self._objects, self._values = [], []
        self._objects, self._values = list(objects), [*map(self._value_of, objects)]

    def same(self, objects: list[Any]) -> bool:
        if not plain_are(objects, self._objects):
            return False
        return all(map(is_, map(self._value_of, objects), self._values))


class PlainTables:
    """In Python; see `_native.pyi` for the words."""

    def __init__(self, tables: list[Any]) -> None:
        self._tables = list(tables)
        self._held = self._now()

    def same(self) -> bool:
        now = self._now()
        return len(now) == len(self._held) and all(map(is_, now, self._held))

    def _now(self) -> list[Any]:
        """An end behind each table: no entry may go from one to the next."""
        now: list[Any] = []
        for table in self._tables:
            now += table.keys()  # TorchScript's are no dicts.
            now += table.values()
            now.append(_END)
        return now


class PlainSizes:
    """In Python; see `_native.pyi` for the words."""

    def __init__(self, containers: list[Any], sizes: Sequence[int]) -> None:
        self._containers, self._sizes = list(containers), list(sizes)

    def same(self) -> bool:
        return [*map(len, self._containers)] == self._sizes


class PlainWords:
    """None are read in Python: a call for each would take longer than to ask."""


class PlainWindowPlan:
    """Stand-in without the extension: no memory is compared in Python."""

    def __init__(self, *_: object) -> None:
        pass


class PlainNodeTable:
    """Stand-in without the extension: whoever looks at a graph again reads all of it."""


_SCALARS = (int, str, bytes, type(None))


def plain_same_value(one: Any, other: Any) -> bool:
    """In Python; see `_native.pyi` for the words."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    match one:
        case tuple() | list() if type(one) in (tuple, list):
            return len(one) == len(other) and all(map(plain_same_value, one, other))
        case dict() if type(one) is dict:
            if len(one) != len(other):
                return False
            return all(map(plain_same_value, one.items(), other.items()))
        case float() if type(one) is float:
            return _FLOAT.pack(one) == _FLOAT.pack(other)
        case _ if type(one) in _SCALARS:
            return bool(one == other)
        case _:
            return _is_same_memory(one, other)


_FLOAT = struct.Struct("d")


def _is_same_memory(one: Any, other: Any) -> bool:
    """Tell whether two buffers have the same form and bytes, or two other values the same text."""
    try:
        a, b = memoryview(one), memoryview(other)
    except TypeError:
        return repr(one) == repr(other)
    same_form = (a.format, a.shape) == (b.format, b.shape)
    return same_form and a.c_contiguous and b.c_contiguous and a.tobytes() == b.tobytes()


def plain_given(question: Any, objects: list[Any]) -> bytes:
    """In Python; see `_native.pyi` for the words."""
    return bytes([answer is not None for answer in map(_function(question), objects)])


def plain_are(objects: list[Any], others: list[Any]) -> bool:
    """In Python; see `_native.pyi` for the words."""
    return len(objects) == len(others) and all(map(is_, objects, others))


def plain_known_refs(
    values: list[Any],
    numbers: dict[int, int],
    plain: frozenset[type],
    edges: list[int],
    integers: list[int],
    address_min: int,
) -> list[Any]:
    """In Python; see `_native.pyi` for the words."""
    found: list[Any] = []
    for one in values:
        if type(one) in plain:
            found.append((one,))
            if type(one) is int and one > address_min:
                integers.append(one)
            continue
        number = numbers.get(id(one))
        found.append(None if number is None else ("", number))
        if number is not None:
            edges.append(number)
    return found


def plain_stands_for(of: type, probe: object, address: int) -> bool:
    """In Python nothing can be made of it."""
    return False


def _function(question: Any) -> Callable[[Any], Any]:
    if isinstance(question, GetSetDescriptorType):
        return attrgetter(question.__name__)
    function: Callable[[Any], Any] = question
    return function


def is_in_c(name: str) -> bool:
    """Whether the extension has it: not where it was built for Python's stable ABI."""
    return native_is_built() and hasattr(import_module("trainmover._native"), name)


if TYPE_CHECKING or is_in_c("Answers"):
    from trainmover._native import (
        Answers,
        NodeTable,
        Pieces,
        Sizes,
        Stored,
        Tables,
        WindowPlan,
        Words,
        are,
        given,
        known_refs,
        same_value,
        stands_for,
    )
else:
    NodeTable, WindowPlan, Words = PlainNodeTable, PlainWindowPlan, PlainWords
    known_refs, same_value = plain_known_refs, plain_same_value
    Answers, Pieces = PlainAnswers, PlainPieces
    Sizes, Stored, Tables = PlainSizes, PlainStored, PlainTables
    are, given, stands_for = plain_are, plain_given, plain_stands_for

Held = Tables | PlainTables


def held_in(tables: list[Any]) -> Held:
    """What is in them now, be they dicts or like dicts, as those of a module in TorchScript."""
    every_is_dict = all([isinstance(table, dict) for table in tables])
    return Tables(tables) if every_is_dict else PlainTables(tables)


__all__ = [
    "Answers",
    "Held",
    "NodeTable",
    "Pieces",
    "PlainAnswers",
    "PlainNodeTable",
    "PlainPieces",
    "PlainSizes",
    "PlainStored",
    "PlainTables",
    "PlainWindowPlan",
    "Sizes",
    "Stored",
    "Tables",
    "WindowPlan",
    "Words",
    "are",
    "given",
    "held_in",
    "is_in_c",
    "known_refs",
    "plain_are",
    "plain_given",
    "plain_known_refs",
    "plain_same_value",
    "same_value",
    "stands_for",
]
