# SPDX-License-Identifier: Apache-2.0
"""What a script keeps that is no plain value, as something that can be compared.

    still   what is told by its name: a function, a class, an object of either. The script may put
            another in its place, a loss for a loss; what is in it is looked for by the search
    moving  what changes as it is used, with no store that the source shows: iterators, queues,
            hashes, context variables, open files, and what nobody tracks (`untracked`)

Two processes that have done the same have equal ones. To look runs nothing of the script's own
code: types are asked, and what lies in an object, never the object itself.
"""

import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import FunctionType, MethodType, ModuleType
from typing import Any
from uuid import UUID

import numpy
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.weak import WeakIdKeyDictionary

from trainmover.state.kinds.generators import is_generator
from trainmover.state.script.fold import names, objects, of_torch
from trainmover.state.script.fold.kinds import PLAIN
from trainmover.state.script.things.held import CANNOT_BE_READ, all_held_by, computed_in, held_by
from trainmover.state.script.things.layers import Hooked
from trainmover.state.script.things.libraries import is_of_library, module_of, only_shows
from trainmover.state.script.things.of_python import Inside
from trainmover.state.script.things.readers import (
    BOUND,
    CACHE,
    CONTAINERS,
    MOVING,
    STILL,
    NameOf,
    ReaderOf,
    name_of,
)
from trainmover.state.script.things.untracked import TRAINED, Untracked
from trainmover.torch_internals.modules import OF_MODULES, parts_of

First = WeakIdKeyDictionary
"""What objects were made with, by these, as they were when any search first saw them."""


class Places:
    """Where objects were found at the first fetch, in all processes alike: a name that stands for
    another one later is told by that, however those are moved to and fro. What is made later has
    none. Nothing is kept alive for that.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._known: dict[int, tuple[weakref.ref[Any], str]] = {}

    def note(self, value: object, place: str) -> None:
        """The first one that is found is as good as any other."""
        if self.is_open and not self.of(value):
            with suppress(TypeError):  # One with slots may not be referred to.
                self._known[id(value)] = weakref.ref(value), place

    def of(self, value: object) -> str:
        """ "": it has none."""
        reference, place = self._known.get(id(value), (None, ""))
        return place if reference is not None and reference() is value else ""


_OF_DATA = (Dataset, Sampler, DataLoader)
_KNOWN = (type, ModuleType, Enum, Dataset, Sampler, *TRAINED, *BOUND)
"""What has nothing of its own, or is compared elsewhere."""
_MEMORY = (Tensor, numpy.ndarray)
TOLD = (PurePath, Decimal, Fraction, date, time, timedelta, UUID)
"""Of Python's own library: what their text says is all that they are."""
_DATA = (*TOLD, Enum, numpy.number, numpy.bool_, range, slice, bytearray)
NUMBERS = (bool, int, float, numpy.number)
_COUNTED = frozenset({"epoch", "yielded", "next_yielded"})
"""In a DistributedSampler, and in torchdata's."""
_NESTED_MAX = 3
_HOLDERS = frozenset({FunctionType, MethodType, functools.partial})
_CALLED = (*_HOLDERS, *BOUND, CACHE, type)
_TELL: tuple[Callable[[Any], bool], ...] = (
    *(objects.is_value, objects.has_attributes_of_numbers, of_torch.is_one),
)
"""Kinds of libraries whose parts or attributes tell all of an object."""
_TOLD_BY_CONTENT = (Distribution, *TRAINED)


class Things:
    """What one search has found of them.

    is_own   whether an object of that type is of the script's own code
    leaves   whether an attribute of that name and value is looked at otherwise: it is stored to,
             others may change it, or it tells the time
    first    what objects that earlier searches saw were made with
    places   where they were found first
    news     whether one was folded that may hold variables and had not been before
    kinds    that nothing but `folded` knows, as far as is known
    still    no object of which ever moves, as far as is known
    """

    def __init__(
        self,
        untracked: Untracked | None = None,
        is_own: Callable[[type], bool] = lambda kind: False,
        leaves: Callable[[str, object], bool] = lambda name, value: False,
        first: First | None = None,
        places: Places | None = None,
    ) -> None:
        self.untracked = untracked or Untracked()
        self._is_own = is_own
        self._leaves = leaves
        self._readers = ReaderOf()
        self._names = NameOf()
        self.kinds: set[type] = set()
        self.still: set[type] = set()
        self.news = False
        self._made: dict[int, tuple[weakref.ref[Any], list[Any]]] = {}
        self._first = WeakIdKeyDictionary() if first is None else first
        self._unreferred: set[type] = set()
        self._making: set[int] = set()
        self._parts: dict[int, tuple[weakref.ref[Any], list[Any]]] = {}
        self.places = places or Places()

    def moves(self, value: object) -> bool:
        """Whether it must be read again each time, though it is the very object that it was."""
        return self.is_moving(type(value)) or self.untracked.has(value)

    def is_moving(self, kind: type) -> bool:
        """Whether every object of the kind must."""
        return self._readers[kind] in MOVING

    def stays(self, value: object) -> bool:
        """Whether all that counts of it is which one it is, and it lives long."""
        kind = type(value)
        still = self._readers[kind] in STILL or issubclass(kind, TRAINED)
        return still and not self.untracked.has(value)

    def is_itself(self, value: object) -> bool:
        """Whether what stands for it stays for as long as it is there: an object of the script's
        own, whose attributes are variables of their own."""
        kind = type(value)
        if kind not in self.kinds or self.places.is_open or self._readers[kind] is not None:
            return False
        return self._is_own(kind) and not issubclass(kind, (*TRAINED, *CONTAINERS))

    def folded(self, value: object, inside: Inside) -> Any:
        """Plain values that stand for it; None if it is no thing."""
        kind = type(value)
        if issubclass(kind, TRAINED):
            known = self.untracked.name_of(value)
            content = None if self._making else self.untracked.folded(value, inside)
            is_module = issubclass(kind, nn.Module)
            is_set = not known and (is_module or not self._making)
            made_with = self._made_with(value, inside) if is_set else []
            parts = self._made_of_modules(value, inside) if is_set and is_module else []
            return [name_of(kind), known, content, made_with, parts]
        reader = self._readers[kind]
        if reader is not None:
            if kind is CACHE and self._making:  # What it has kept is looked at elsewhere.
                return [self._names[kind], inside(held_by(value).get("__wrapped__"))]
            if kind in _HOLDERS:
                self._known_made(value, inside)
            told = [self._names[kind], reader(value, inside), self._of(value, inside)]
            return [*told, self._known_made(value, inside)] if self._is_own(kind) else told
        known = self._which(value)
        if self._is_own(kind):
            held = _contained(value, inside) if issubclass(kind, CONTAINERS) else None
            return [self._names[kind], self._known_made(value, inside), held, known]
        if issubclass(kind, CONTAINERS) and is_closed(kind):
            return [self._names[kind], _contained(value, inside)]
        if is_generator(value):
            self._known_made(value, inside)
        if not known and issubclass(kind, _OF_DATA):
            return [self._names[kind], self._data_in(value, inside)]
        return [self._names[kind], known] if known else None

    def _data_in(self, value: object, inside: Inside) -> list[Any]:
        """Of data of torch's kinds that was made later: what it is made of. What samplers count
        goes with the place in their loop: where a standby stands it is another by nature."""
        counted = _COUNTED if isinstance(value, Sampler) else ()
        return [
            [name, inside(one)]
            for name, one in sorted(held_by(value).items(), key=_key)
            if not (name[:1] == "_" or name in counted or is_generator(one) or one is None)
        ]

    def _which(self, value: object) -> str:
        """Which one it is of several that are made alike."""
        name, reference = self.untracked.names.get(id(value), ("", None))  # As `own_name`.
        return name if reference is not None and reference() is value else self.places.of(value)

    def _of(self, value: object, inside: Inside) -> Any:
        """Which function it is; of a method, whose it is; of a class that no module has, what it is
        made of."""
        if type(value) not in BOUND:
            known = self._which(value)
            is_made = not known and isinstance(value, type) and not _is_in_module(value)
            return self._made_of(value, inside) if is_made else known
        owner: Any = value.__self__  # type: ignore[attr-defined]
        kind = type(owner)
        if issubclass(kind, type | ModuleType):
            return ""
        if known := self._which(owner):
            return known
        if issubclass(kind, _TOLD_BY_CONTENT) or kind in PLAIN:
            return inside(owner)
        return self._known_made(owner, inside) if self._is_own(kind) else ""

    def _made_of(self, value: Any, inside: Inside) -> list[Any]:
        return [
            [name, inside(one)]
            for name, one in sorted(vars(value).items())
            if (type(one) is FunctionType or (name[:2] != "__" and self._is_data(one, 0)))
            and not self._leaves(name, one)
        ]

    def inside(self, value: object) -> list[tuple[object, object]]:
        """What it is told by, if it is a thing: what lies in it, each with a name that is the same
        in all processes."""
        found: list[object] = []
        reader = self._readers[type(value)]
        if reader is not None:
            with suppress(*CANNOT_BE_READ):
                reader(value, found.append)
        if type(value) is numpy.ndarray and value.dtype.hasobject:
            found.append(value.reshape(-1).tolist())
        return [part for one in found for part in _parts_of(one)]

    def is_own_container(self, value: object) -> bool:
        """Whether it is of a class of the script's own made out of a container."""
        return self._is_own(type(value)) and issubclass(type(value), CONTAINERS)

    def _known_made(self, value: object, inside: Inside) -> list[Any]:
        """As it was when it was first seen: who changes it later shows in variables of their own.
        It is not kept alive for that."""
        key = id(value)
        reference, made_with = self._made.get(key, (None, None))
        if reference is None or reference() is not value:
            try:
                made_with = self._at_first(value, inside)
                gone = functools.partial(_forget, self._made, key)
                self._made[key] = weakref.ref(value, gone), made_with
                self.news = self.news or self._may_keep(value)
            except TypeError:  # One with slots may not be referred to: its class is known then.
                made_with = self._made_with(value, inside)
                self.news |= type(value) not in self._unreferred
                self._unreferred.add(type(value))
        return made_with or []

    def _at_first(self, value: object, inside: Inside) -> list[Any]:
        """In whichever search: what it was made with may be a list that grows in other hands."""
        made_with: list[Any] | None = self._first.get(value)  # type: ignore[no-untyped-call]
        if made_with is None:
            made_with = self._first[value] = self._made_with(value, inside)
        return made_with

    def _may_keep(self, value: object) -> bool:
        """Whether variables may be in it: not in a record that only its constructor writes."""
        kind, held = type(value), held_by(value)
        if not self._is_own(kind) or issubclass(kind, CONTAINERS) or not held:
            return True
        if not all(issubclass(type(one), (*PLAIN, *_MEMORY)) for one in held.values()):
            return True
        known = {name for one in kind.__mro__ for name in vars(one)} | held.keys()
        return any(self._leaves(name, held.get(name)) for name in known)

    def _made_with(self, value: object, inside: Inside) -> list[Any]:
        """Attributes that only its constructor stores to: of an object of the script's own class
        all that hold data or say what is called, of any other the plain ones and functions. What is
        trained, and lies in it, is compared elsewhere: here it is told by what it was made with."""
        return self._told(value, self._stay_in, inside)

    def _told(
        self, value: Any, parts: Callable[[Any], Iterable[tuple[str, Any]]], inside: Inside
    ) -> list[Any]:
        """By names; nothing of what is being told further out, as of a parent that a child has."""
        if id(value) in self._making:
            return []
        self._making.add(id(value))
        try:
            return [[name, inside(one)] for name, one in parts(value)]
        finally:
            self._making.discard(id(value))

    def _made_of_modules(self, value: Any, inside: Inside) -> list[Any]:
        """What the modules in one were made with, told once in a search: they may be many."""
        if id(value) in self._making:
            return []
        known = self._parts.get(id(value))
        if known is None or known[0]() is not value:
            told = self._told(value, lambda one: parts_of(one).items(), inside)
            known = self._parts[id(value)] = weakref.ref(value), told
        return known[1]

    def beside(self, value: object, fields: Mapping[str, object], inside: Inside) -> list[Any]:
        """Of an object of a data class of the script's what it was made with and has no field for,
        as what `__post_init__` works out."""
        if not self._is_own(type(value)) or held_by(value).keys() <= fields.keys():
            return []
        return [[name, inside(one)] for name, one in self._stay_in(value) if name not in fields]

    def _stay_in(self, value: object) -> list[tuple[str, Any]]:
        """By name, of what it is made with."""
        kind: Any = type(value)
        is_own = self._is_own(kind)
        held = all_held_by(value) if is_own else held_by(value)
        later = computed_in(kind).keys() | (OF_MODULES if issubclass(kind, TRAINED) else ())
        return [
            (name, one)
            for name, one in sorted(held.items(), key=_key)
            if (self._is_data(one, 0) if is_own else name[:1] != "_" and _is_set(one))
            and not (name in later or self._leaves(name, one))
        ]

    def _is_data(self, value: Any, depth: int) -> bool:
        """Whether all of it is said by what it holds, now and later."""
        kind = type(value)
        if kind in PLAIN or issubclass(kind, (*_DATA, *_TOLD_BY_CONTENT, *_CALLED, *names.KINDS)):
            return True
        if any(tells(kind) for tells in _TELL):
            return True
        if issubclass(kind, _MEMORY):
            return not self.untracked.has(value)
        if kind in CONTAINERS and depth < _NESTED_MAX:
            entries = value.values() if kind is dict else value
            return all(self._is_data(one, depth + 1) for one in entries)
        return self._is_own(kind)


def _is_set(value: object) -> bool:
    """What a library's object is set to: a number, several, or a function."""
    if type(value) is tuple:
        return all(map(_is_set, value))
    return type(value) in PLAIN or issubclass(type(value), _CALLED)


def _parts_of(value: Any) -> list[tuple[object, object]]:
    """Its entries if it is a dict or a list, which may be made for this look only; else itself."""
    if type(value) is list:
        return list(enumerate(value))
    if type(value) is not dict:
        return [(0, value)]
    return [(n if type(n) in PLAIN else i, one) for i, (n, one) in enumerate(value.items())]


def in_words(value: object, tracked_as: str = "") -> str:
    """For people."""
    kind = type(value)
    if tracked_as:
        return f"the {kind.__name__} that is tracked as `{tracked_as}`"
    if kind is FunctionType:
        return f"the function {value.__name__}"  # type: ignore[attr-defined]
    if kind is Hooked:
        return "the hooks of tensors and optimizers"
    if issubclass(kind, type):
        return f"the class {name_of(value)}"  # type: ignore[arg-type]
    return f"a {kind.__name__}"


def _is_in_module(kind: type) -> bool:
    found: object = sys.modules.get(module_of(kind))
    for name in kind.__qualname__.split("."):
        found = vars(found).get(name) if isinstance(found, ModuleType | type) else None
    return found is kind


def is_closed(kind: type) -> bool:
    """Whether its objects are some library's, of which nobody knows all that they keep."""
    return is_of_library(kind) and not only_shows(kind) and not issubclass(kind, _KNOWN)


def _contained(value: Any, inside: Inside) -> Any:
    """Of a class of the script's own that is a container: read as its base class would."""
    kind = type(value)
    if issubclass(kind, dict):
        return inside(dict(dict.items(value)))
    for base in CONTAINERS:
        if issubclass(kind, base):
            return inside([*base.__iter__(value)])
    return None


def _forget(known: dict[int, Any], key: int, gone: object) -> None:
    known.pop(key, None)


def _key(entry: tuple[Any, Any]) -> str:
    return str(entry[0])
