# SPDX-License-Identifier: Apache-2.0
"""Layout of Python objects: which part of an object's state lies where.

The walk knows objects by their layout and not by their purpose: a module, an optimizer and a loader
are all "a Python object with items, a `__dict__` and slots". Only types that keep state in C need a
rule of their own.
"""

import collections
import logging
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, cast

from trainmover.state.class_caches import cached_by_class, forget_classes
from trainmover.torch_internals.objects import OF_THE_PROCESS, WITH_PROCESSES

CONTAINERS: tuple[type, ...] = (
    *(dict, collections.OrderedDict, collections.defaultdict, list, set, collections.deque),
)
"""Mutable containers of Python, whose items the walk reads and restores."""

_carried = ["trainmover.loops"]
"""Modules of this package whose objects are a script's state."""
RUNTIME_PACKAGES = (
    *("trainmover", "threading", "_thread", "multiprocessing", "subprocess", "tempfile", "socket"),
    *("concurrent", "asyncio", "selectors", "importlib", "traceback", "io", "_io", "codecs", "abc"),
    *("typing", "inspect", "weakref", "contextvars"),
    *OF_THE_PROCESS,
)
"""Packages whose objects belong to the process or to the operating system, and are opaque."""

_RUNTIME_CLASSES = frozenset({weakref.finalize, logging.Manager})
_HEAP_TYPE, _BASE_TYPE_IN_C = 1 << 9, 1 << 7
_MISSING = object()


@cached_by_class
def solid_base(cls: Any) -> Any:
    """Return the first class in the MRO that is implemented in C, which decides the layout.

    None: a class between keeps state that Python code cannot reach.
    """
    for base in cls.__mro__:
        own = vars(base)
        if not base.__flags__ & _HEAP_TYPE:
            return base
        if isinstance(own.get("__new__"), types.BuiltinFunctionType):
            return base
        if base.__flags__ & _BASE_TYPE_IN_C or "__module__" not in own:
            return base
    return None


@cached_by_class
def slots_of(cls: Any) -> tuple[tuple[str, Any], ...]:
    """Return name and descriptor of each slot that `__slots__` of a class or its bases declares."""
    return tuple(
        (f"{base.__name__}.{name}", member)
        for base in cls.__mro__
        for name in _slot_names(base)
        if isinstance(member := vars(base).get(name), types.MemberDescriptorType)
    )


def _slot_names(cls: type) -> Iterator[str]:
    declared = vars(cls).get("__slots__", ())
    for name in (declared,) if isinstance(declared, str) else tuple(declared):
        private = name.startswith("__") and not name.endswith("__")
        yield f"_{cls.__name__.lstrip('_')}{name}" if private else name


def slot_values(obj: object) -> dict[str, object]:
    """Return the values of an object's slots that are set, by class and name."""
    found, cls = {}, cast(Any, type(obj))
    for name, member in slots_of(cls):
        value = slot_value(obj, member)
        if value is not _MISSING:
            found[name] = value
    return found


def slot_value(obj: object, member: Any, default: object = _MISSING) -> object:
    """Return the value of one slot; `default` if it is not set."""
    try:
        return member.__get__(obj)
    except AttributeError:
        return default


def attributes_of(obj: object) -> dict[str, Any] | None:
    """Return the `__dict__` of an object itself; None if it has none that is a plain dict."""
    if type(obj) in CONTAINERS:
        return None
    names = getattr(obj, "__dict__", None)
    return names if type(names) is dict else None


def carry(*modules: str) -> None:
    """Have the objects of these modules of this package, too, be a script's state."""
    _carried.extend(modules)
    forget_classes()


@cached_by_class
def is_runtime(cls: Any) -> bool:
    """Tell whether a class is the process's or the operating system's, so that it is opaque."""
    module = cls.__module__ or ""
    if _is_in(module, _carried):
        return False
    if cls in _RUNTIME_CLASSES or cls.__name__.endswith(WITH_PROCESSES):
        return True
    return _is_in(module, RUNTIME_PACKAGES)


def _is_in(module: str, packages: Iterable[str]) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in packages)


def is_described(cls: type) -> bool:
    """Tell whether items, `__dict__` and slots are the whole state of a class's instances."""
    base = solid_base(cls)
    return base is not None and cls is not object and (base is object or base in CONTAINERS)
