# SPDX-License-Identifier: Apache-2.0
"""Comparisons in memory for each kind of node, so that only changed nodes are read again.

The rule is: what a check cannot see is read again at each look. A kind without an entry here has
no check. A check may report a node that did not change; it must never miss one that did.
"""

import collections
import functools
import io
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
from torch import Tensor, UntypedStorage

from trainmover.asked import NodeTable, WindowPlan
from trainmover.graph import windows
from trainmover.graph.blocks import Span
from trainmover.graph.layout import CONTAINERS, slots_of, solid_base
from trainmover.graph.nodes import LEFT_OUT, Node
from trainmover.loops.turns import Loop, PlainLoop, PlainTurns, Turns
from trainmover.state.class_caches import cached_by_class
from trainmover.torch_internals.tensors import is_view
from trainmover.torch_internals.windows import Window, windows_of, windows_of_storage

ITEMS, _ATTRIBUTES, _FUNCTION, _CELL, _CLASS = 1, 2, 4, 8, 16
"""Parts of an object, as the extension knows them."""

IMMUTABLE = frozenset(
    {"tuple", "frozenset", "code", "enum", "method", "builtin-method", "descriptor", "match"}
    | {"numpy-generator", "range", "slice", "pattern", "uuid", "date", "time", "datetime"}
    | {"timedelta", "timezone", "decimal", "fraction", "path", "pure-path"}
)
"""Kinds whose objects never get another body."""


class Check(NamedTuple):
    """Comparison of one object; see `NodeTable.put`."""

    parts: int = 0
    members: tuple[Any, ...] = ()
    windows: list[Window] | WindowPlan = []  # noqa: RUF012  Nobody changes it.
    content: bytes | None = None

    def put_into(self, table: NodeTable, number: int, obj: Any) -> bool:
        """Note an object as it is now; tell whether it has these parts."""
        try:
            table.put(number, obj, *self)
        except (TypeError, ValueError):
            return False
        return True


def check_of(node: Node, obj: Any, *, version: bool = False) -> Check | None:
    """Return what is compared of an object; None: its node is read again each time.

    version  of a tensor: compare its counter of writes
    """
    if node[0] == "tensor":
        return _of_tensor(obj, version, node[-1].get("grad") != LEFT_OUT)
    make = _CHECKS.get(node[0])
    return None if make is None else make(obj)


def check_of_block(span: Span, content: bytes, *, trusted: bool = False) -> Check | None:
    """Return what is compared of a block: where its owner has its memory, and what is in it.

    trusted  its content is not compared: the counters of its tensors tell writes
    """
    found = _windows_of_owner(span.owner)
    if found is not None and trusted:
        return Check(0, (), found)
    if found is None or span.device != "cpu":
        return None
    return Check(0, (), [*found, (span.start, span.size)], content)


def _windows_of_owner(owner: Any) -> list[Window] | None:
    if isinstance(owner, UntypedStorage):
        return windows_of_storage(owner)
    return windows.windows_of_array(owner) if type(owner) is numpy.ndarray else None


def _of_object(obj: Any) -> Check | None:
    cls: Any = type(obj)
    return _of_instances(cls)


@cached_by_class
def _of_instances(cls: Any) -> Check | None:
    """Return what is compared of objects of a class: items, `__dict__` and slots."""
    if cls in CONTAINERS:
        return Check(ITEMS, _members_of(cls))
    if not _has_plain_dict(cls):
        return None
    is_container = cls is not types.SimpleNamespace and solid_base(cls) is not object
    return Check(_ATTRIBUTES + ITEMS * is_container, _members_of(cls))


def _members_of(cls: Any) -> tuple[Any, ...]:
    """Return the descriptors of what objects of a class keep beside items and `__dict__`."""
    found = [member for _, member in slots_of(cls)]
    if issubclass(cls, collections.defaultdict):
        found.append(vars(collections.defaultdict)["default_factory"])
    return tuple(found)


def _has_plain_dict(cls: Any) -> bool:
    """Tell whether `__dict__` of a class's objects is the one that Python gives them."""
    if not isinstance(cls.__getattribute__, types.WrapperDescriptorType):
        return False
    for base in cls.__mro__:
        if "__dict__" in vars(base):
            return isinstance(vars(base)["__dict__"], types.GetSetDescriptorType)
    return True


def _of_opaque(obj: Any) -> Check | None:
    """Return a check of the type alone; streams and tensors may become carried ones."""
    if type(obj) is io.TextIOWrapper:
        return _seen_in(windows.windows_of_text_writer(obj), _ATTRIBUTES)
    return None if isinstance(obj, io.IOBase | Tensor) else Check()


def _of_loop(obj: Any) -> Check | None:
    """Return what shows where a loop is; its node holds what it refers to."""
    cls = type(obj)
    if cls in (Loop, Turns) and cls not in (PlainLoop, PlainTurns):
        return Check(0, (), [windows.own_memory(obj, cls)])
    return Check(0, _members_of(cls))


def _of_tensor(obj: Any, version: bool, gradient: bool) -> Check | None:
    """Return what shows form, place, gradient and attributes; its content is its block's.

    Views know their function only by the counter of writes.
    """
    found = windows_of(obj, version=version or is_view(obj), gradient=gradient)
    return _seen_in(found, _ATTRIBUTES)


def _seen_in(found: list[Window] | WindowPlan | None, parts: int = 0) -> Check | None:
    return None if found is None else Check(parts, (), found)


_PARTS_OF_PARTIAL = tuple(
    vars(functools.partial).get(name) for name in ("func", "args", "keywords")
)

_CHECKS: dict[str, Callable[[Any], Check | None]] = {
    "object": _of_object,
    "opaque": _of_opaque,
    "loop": _of_loop,
    "function": lambda obj: Check(_FUNCTION),
    "cell": lambda obj: Check(_CELL),
    "class": lambda obj: Check(_CLASS),
    "partial": lambda obj: Check(_ATTRIBUTES, _PARTS_OF_PARTIAL),
    "array": lambda obj: _seen_in(windows.windows_of_array(obj)),
    "module": lambda obj: Check(_ATTRIBUTES),
    "iterator": lambda obj: _seen_in(windows.windows_of_iterator(obj)),
    "generator": lambda obj: _seen_in(windows.windows_of_generator(obj)),
    "weakref": lambda obj: _seen_in(windows.windows_of_weakref(obj)),
    "torch-generator": lambda obj: _seen_in(windows.windows_of_torch(obj)),
    "python-random": lambda obj: _seen_in(windows.windows_of_random(obj), _ATTRIBUTES),
    "numpy-bit-generator": lambda obj: _seen_in(windows.windows_of_bits(obj)),
    "numpy-random-state": lambda obj: _seen_in(windows.windows_of_random_state(obj)),
}
