# SPDX-License-Identifier: Apache-2.0
"""What a run leaves in libraries: in their modules and classes, and in what these hold.

A library that keeps what it was told first, such as which rank this is, would tell the next run the
same. So what it holds is noted as its modules are imported, place by place, and each place gets
back at the end of a run what it held then. What an import changes in other libraries stays: a
second import does nothing. So do modules: who has imported one finds it in its package.

Not looked at: torch, and what it is made with, which stay warm; modules in C; Python's own.
"""

import functools
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import EnumMeta
from importlib.machinery import EXTENSION_SUFFIXES
from inspect import getattr_static
from operator import is_
from types import FunctionType, ModuleType
from typing import Any

from trainmover.installed import is_installed
from trainmover.sandbox.process.modules import last, since, top_of

_WARM = frozenset({"torch", "torchgen", "functorch", "triton", "sympy", "mpmath", "numpy"})
_OTHERS = _WARM | {"trainmover"} | sys.stdlib_module_names
_DEEP = 8
"""Steps from a module to what is looked at."""
_CACHE: type = type(functools.lru_cache(len))
_ABSENT = object()

Held = tuple[Any, ...]
"""What a place holds: keys, then their values; or just entries. Told apart by identity."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """How places of one kind are read and written.

    merge   of (kept, before, after): what is kept, with what changed from one to the other
    """

    read: Callable[[Any], Held]
    write: Callable[[Any, Held], None]
    merge: Callable[[Held, Held, Held], Held]


class _Place:
    """Something that holds others, and what it is to hold at the end of a run."""

    __slots__ = ("holder", "kept", "kind")

    def __init__(self, holder: Any, kind: _Kind) -> None:
        self.holder, self.kind, self.kept = holder, kind, kind.read(holder)

    def other(self, than: Held) -> Held | None:
        """What it holds now; None if that is the same."""
        now = self.kind.read(self.holder)
        return None if len(now) == len(than) and all(map(is_, now, than)) else now


class Libraries:
    """One for the process: of what is loaded from now on."""

    def __init__(self) -> None:
        self._last_module = last()
        self._tops: set[str] = set()
        self._places: dict[int, _Place] = {}
        self._before: dict[int, Held] = {}

    def import_begins(self) -> None:
        """Of a module that stays."""
        self._before = {
            key: held
            for key, place in self._places.items()
            if (held := place.other(place.kept)) is not None
        }

    def import_ends(self) -> None:
        """Carry over what the import has changed, and look at what it has made."""
        for key, place in self._places.items():
            before = self._before.get(key, place.kept)
            if (after := place.other(before)) is not None:
                place.kept = place.kind.merge(place.kept, before, after)
        self._before = {}
        self._look()

    def put_back(self) -> None:
        """The run is over."""
        for place in self._places.values():
            if place.other(place.kept) is not None:
                place.kind.write(place.holder, place.kept)

    def _look(self) -> None:
        names = [name for name in since(self._last_module) if is_librarys(name)]
        self._last_module = last()
        self._tops |= {top_of(name) for name in names}
        for name in names:
            self._note(vars(sys.modules[name]), _DEEP)

    def _note(self, holder: Any, deep: int) -> None:
        if id(holder) in self._places:
            return
        place = self._places[id(holder)] = _Place(holder, _kind(holder))
        for held in place.kept if deep else ():
            inside = self._inside(held)
            if inside is not None:
                self._note(inside, deep - 1)

    def _inside(self, held: Any) -> Any:
        """What of it can be looked at: itself, or the attributes of an object or a function."""
        kind = type(held)
        if kind is _CACHE or issubclass(kind, _BASES):
            return held
        if issubclass(kind, type):
            return held if self._has_made(held) and not issubclass(kind, EnumMeta) else None
        if kind is FunctionType:
            return vars(held) or None
        return _attributes(held) if self._has_made(kind) else None

    def _has_made(self, kind: type) -> bool:
        return top_of(str(vars(kind).get("__module__"))) in self._tops


def is_librarys(name: str) -> bool:
    """Whether the module of this name is looked at."""
    module = sys.modules.get(name)
    if top_of(name) in _OTHERS or not isinstance(module, ModuleType):
        return False
    path = getattr_static(module, "__file__", None)
    return bool(path) and is_installed(path) and not path.endswith(tuple(EXTENSION_SUFFIXES))


def _attributes(held: Any) -> Any:
    try:
        found = object.__getattribute__(held, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


# --- places of one kind or another: none of their own methods is called ------------------------


def _kind(holder: Any) -> _Kind:
    kind = type(holder)
    if kind is _CACHE:
        return _CALLS
    if issubclass(kind, type):
        return _CLASS
    return _MAPPING if issubclass(kind, dict) else _ENTRIES


def _base(holder: Any) -> Any:
    return next(base for base in _BASES if issubclass(type(holder), base))


def _read_mapping(holder: Any) -> Held:
    base = _base(holder)
    return (*base.keys(holder), *base.values(holder))


def _write_mapping(holder: Any, held: Held) -> None:
    base = _base(holder)
    _change(
        _pairs(_read_mapping(holder)),
        _pairs(held),
        set_to=lambda key, value: base.__setitem__(holder, key, value),
        drop=lambda key: base.__delitem__(holder, key),
    )


def _read_class(holder: type) -> Held:
    return _read_mapping(dict(vars(holder)))


def _write_class(holder: type, held: Held) -> None:
    _change(
        dict(vars(holder)),
        _pairs(held),
        set_to=lambda key, value: type.__setattr__(holder, key, value),
        drop=lambda key: type.__delattr__(holder, key),
    )


def _read_entries(holder: Any) -> Held:
    return tuple(_base(holder).__iter__(holder))


def _write_entries(holder: Any, held: Held) -> None:
    base = _base(holder)
    base.clear(holder)
    (base.update if base is set else base.extend)(holder, held)


def _has_entries(holder: Any) -> Held:
    return (holder.cache_info().currsize > 0,)


def _clear(holder: Any, held: Held) -> None:
    if held == (False,):
        holder.cache_clear()


def _change(
    now: dict[Any, Any],
    kept: dict[Any, Any],
    *,
    set_to: Callable[[Any, Any], None],
    drop: Callable[[Any], None],
) -> None:
    """All but modules that were loaded, and what Python itself keeps in a module or a class."""
    for key, value in now.items():
        if key not in kept and not isinstance(value, ModuleType) and not _is_pythons(key):
            drop(key)
    for key, value in kept.items():
        if now.get(key, _ABSENT) is not value and not _is_pythons(key):
            set_to(key, value)


def _is_pythons(key: Any) -> bool:
    return type(key) is str and key.startswith("__") and key.endswith("__")


def _pairs(held: Held) -> dict[Any, Any]:
    half = len(held) // 2
    return dict(zip(held[:half], held[half:], strict=True))


def _merged_mapping(kept: Held, before: Held, after: Held) -> Held:
    was, now = _pairs(before), _pairs(after)
    changed = {key: value for key, value in now.items() if was.get(key, _ABSENT) is not value}
    stay = {key: value for key, value in _pairs(kept).items() if key in now or key not in was}
    return _read_mapping(stay | changed)


def _merged_entries(kept: Held, before: Held, after: Held) -> Held:
    was, now = {*map(id, before)}, {*map(id, after)}
    stay = [entry for entry in kept if id(entry) in now or id(entry) not in was]
    return (*stay, *(entry for entry in after if id(entry) not in was))


def _newest(kept: Held, before: Held, after: Held) -> Held:
    return after


_BASES = (OrderedDict, dict, list, set, deque)
_MAPPING = _Kind(_read_mapping, _write_mapping, _merged_mapping)
_CLASS = _Kind(_read_class, _write_class, _merged_mapping)
_ENTRIES = _Kind(_read_entries, _write_entries, _merged_entries)
_CALLS = _Kind(_has_entries, _clear, _newest)
