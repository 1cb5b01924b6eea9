"""What a script keeps that is no plain value, as something that can be compared.

    still   what is told by its name: a function, a class, an object of either. The script may put
            another in its place, a loss for a loss; what is in it is looked for by the search
    moving  what changes as it is used, with no store that the source shows: iterators, queues,
            hashes, context variables, open files, and what nobody tracks (`untracked`)

Two processes that have done the same have equal ones. To look runs nothing of the script's own
code: types are asked, and what lies in an object, never the object itself.
"""

import ast
import asyncio
import contextvars
import ctypes
import functools
import gc
import io
import itertools
import mmap
import os
import queue
import re
import sys
import threading
import types
import weakref
import zlib
from collections import ChainMap, OrderedDict, UserDict, UserList, UserString, deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from pathlib import PurePath
from types import (
    AsyncGeneratorType,
    BuiltinMethodType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any
from uuid import UUID

import numpy
import xxhash
from torch import Tensor
from torch.quasirandom import SobolEngine
from torch.utils.data import Dataset, Sampler
from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

from trainmover.installed import is_installed
from trainmover.state.kinds.generators import is_generator
from trainmover.state.script.code.source import scope_of
from trainmover.state.script.code.syntax import walk
from trainmover.state.script.crowds import Crowd
from trainmover.state.script.fold import iterators, names
from trainmover.state.script.fold.kinds import PLAIN
from trainmover.state.script.layers import Hooked, Layers
from trainmover.state.script.libraries import is_of_library, module_of, only_shows
from trainmover.state.script.place.liveness import live_at
from trainmover.state.script.place.operands import read_before
from trainmover.state.script.place.stacked import address_at, levels
from trainmover.state.script.untracked import TRAINED, Untracked
from trainmover.torch_internals import loaders

Inside = Callable[[object], Any]
"""Folds what a thing holds."""
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


CANNOT_BE_READ = (
    *(RuntimeError, ValueError, TypeError, AttributeError, LookupError, ReferenceError, OSError),
)
"""What may be raised where a thing is looked at that others change meanwhile."""
_OPTIMIZED, _WRITE_THROUGH = 0x1, sys.version_info >= (3, 13)


_CONTENT_MAX = 1024 * 1024
"""Bytes of a memory or a file in memory that are looked at."""
_MADE_OF_OTHERS: tuple[type, ...] = (
    *(map, filter, zip, enumerate),
    *(one for one in vars(itertools).values() if isinstance(one, type)),
)
ITERATORS = frozenset((*iterators.PLACED, *_MADE_OF_OTHERS, GeneratorType))
"""Of which it can be told how far they are."""
BOUND = frozenset(
    {
        *(MethodType, BuiltinMethodType, MethodWrapperType),
        *(type(numpy.random.rand), type(re.compile("").match)),
    }
)
_KNOWN = (type, ModuleType, Enum, Dataset, Sampler, *TRAINED, *BOUND)
"""What has nothing of its own, or is compared elsewhere."""
CACHE = type(functools.lru_cache(len))
_MEMORY = (Tensor, numpy.ndarray)
TOLD = (PurePath, Decimal, Fraction, date, time, timedelta, UUID)
"""Of Python's own library: what their text says is all that they are."""
_DATA = (*TOLD, Enum, numpy.number, numpy.bool_, range, slice, bytearray)
_NESTED_MAX = 3
_HOLDERS = frozenset({FunctionType, MethodType, functools.partial})
_TABLES = (dict, OrderedDict)
_CONTAINERS = (dict, list, tuple, deque, set, frozenset)
_COMPRESSORS = (type(zlib.compressobj()), type(zlib.decompressobj()))
C_DATA = ctypes.c_int.__mro__[-2]
_QUEUES = (queue.Queue, queue.LifoQueue, queue.PriorityQueue)
_FILES = (io.TextIOWrapper, io.BufferedReader, io.FileIO, io.BytesIO, io.StringIO)
_HASHES = re.compile(r"_(hashlib|md5|sha\d*|blake2|xxhash)|xxhash\b.*")
_USERS = (UserDict, UserList, UserString)
_WEAK = (
    *(weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet),
    *(WeakIdKeyDictionary, WeakTensorKeyDictionary),
)


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
        self._readers = _ReaderOf()
        self._names = _NameOf()
        self.kinds: set[type] = set()
        self.still: set[type] = set()
        self.news = False
        self._made: dict[int, tuple[weakref.ref[Any], list[Any]]] = {}
        self._first = WeakIdKeyDictionary() if first is None else first
        self._unreferred: set[type] = set()
        self.places = places or Places()

    def moves(self, value: object) -> bool:
        """Whether it must be read again each time, though it is the very object that it was."""
        return self.is_moving(type(value)) or self.untracked.has(value)

    def is_moving(self, kind: type) -> bool:
        """Whether every object of the kind must."""
        return self._readers[kind] in _MOVING

    def stays(self, value: object) -> bool:
        """Whether all that counts of it is which one it is, and it lives long."""
        kind = type(value)
        still = self._readers[kind] in _STILL or issubclass(kind, TRAINED)
        return still and not self.untracked.has(value)

    def folded(self, value: object, inside: Inside) -> Any:
        """Plain values that stand for it; None if it is no thing."""
        kind = type(value)
        if issubclass(kind, TRAINED):
            known = self.untracked.name_of(value)
            made_with = [] if known else self._made_with(value, inside)
            return [_name(kind), known, self.untracked.folded(value, inside), made_with]
        reader = self._readers[kind]
        if reader is not None:
            if kind in _HOLDERS:
                self._known_made(value, inside)
            return [self._names[kind], reader(value, inside), self._of(value, inside)]
        known = self._which(value)
        if self._is_own(kind):
            held = _contained(value, inside) if issubclass(kind, _CONTAINERS) else None
            return [self._names[kind], self._known_made(value, inside), held, known]
        if issubclass(kind, _CONTAINERS) and is_closed(kind):
            return [self._names[kind], _contained(value, inside)]
        if is_generator(value):
            self._known_made(value, inside)
        return [self._names[kind], known] if known else None

    def _which(self, value: object) -> str:
        """Which one it is of several that are made alike."""
        name, reference = self.untracked.names.get(id(value), ("", None))  # As `own_name`.
        return name if reference is not None and reference() is value else self.places.of(value)

    def _of(self, value: object, inside: Inside) -> Any:
        """Which function it is; of a method, whose it is."""
        if type(value) not in BOUND:
            return self._which(value)
        owner: Any = value.__self__  # type: ignore[attr-defined]
        of_own = self._is_own(type(owner)) and not issubclass(type(owner), type | ModuleType)
        return self._which(owner) or (self._known_made(owner, inside) if of_own else "")

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
        return self._is_own(type(value)) and issubclass(type(value), _CONTAINERS)

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
        if not self._is_own(kind) or issubclass(kind, _CONTAINERS) or not held:
            return True
        if not all(issubclass(type(one), (*PLAIN, *_MEMORY)) for one in held.values()):
            return True
        known = {name for one in kind.__mro__ for name in vars(one)} | held.keys()
        return any(self._leaves(name, held.get(name)) for name in known)

    def _made_with(self, value: object, inside: Inside) -> list[Any]:
        """Attributes that only its constructor stores to: of an object of the script's own class
        all that hold data, of any other the plain ones."""
        kind = type(value)
        is_own = self._is_own(kind) and not issubclass(kind, TRAINED)
        held = {**slots_in(value), **held_by(value)} if is_own else held_by(value)
        later = computed_in(kind)  # type: ignore[arg-type]
        return [
            [name, inside(one)]
            for name, one in sorted(held.items(), key=_key)
            if (self._is_data(one, 0) if is_own else type(one) in PLAIN and name[:1] != "_")
            and not (name in later or self._leaves(name, one))
        ]

    def _is_data(self, value: Any, depth: int) -> bool:
        """Whether all of it is said by what it holds, now and later."""
        kind = type(value)
        if kind in PLAIN or issubclass(kind, _DATA):
            return True
        if issubclass(kind, _MEMORY):
            return not self.untracked.has(value)
        if kind in _CONTAINERS and depth < _NESTED_MAX:
            entries = value.values() if kind is dict else value
            return all(self._is_data(one, depth + 1) for one in entries)
        return self._is_own(kind) and not issubclass(kind, TRAINED)


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
        return f"the class {_name(value)}"  # type: ignore[arg-type]
    return f"a {kind.__name__}"


def is_closed(kind: type) -> bool:
    """Whether its objects are some library's, of which nobody knows all that they keep."""
    return is_of_library(kind) and not only_shows(kind) and not issubclass(kind, _KNOWN)


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


@lru_cache(maxsize=1024)
def computed_in(kind: type) -> dict[str, "functools.cached_property[Any]"]:
    """Attributes that its objects get as they are first asked for."""
    every = {name: one for base in reversed(kind.__mro__) for name, one in vars(base).items()}
    return {name: one for name, one in every.items() if type(one) is functools.cached_property}


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
    slot = _dict_slot(type(value))  # type: ignore[arg-type]
    held = None if slot is None else slot.__get__(value)
    return held if type(held) is dict else {}


def closed_over(function: FunctionType) -> dict[str, Any]:
    """What a function closes over, by name, as far as it is there yet."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def has_attributes(kind: type) -> bool:
    """Whether its objects may have any."""
    return _dict_slot(kind) is not None


@lru_cache(maxsize=1024)
def _dict_slot(kind: type) -> GetSetDescriptorType | MemberDescriptorType | None:
    """Python's own: a property of that name may do anything."""
    found = next((vars(one)["__dict__"] for one in kind.__mro__ if "__dict__" in vars(one)), None)
    return found if isinstance(found, GetSetDescriptorType | MemberDescriptorType) else None


def locals_of(frame: FrameType) -> dict[str, Any]:
    """A copy. Before Python 3.13 a frame keeps what it has shown of its locals: it is emptied,
    unless the script itself has asked for the same dict."""
    shown: Any = frame.f_locals
    values = dict(shown)
    if not _WRITE_THROUGH and frame.f_code.co_flags & _OPTIMIZED and sys.getrefcount(shown) <= 3:
        shown.clear()
    return values


# --- what is read of each kind --------------------------------------------------------------------


class _NameOf(dict[type, str]):
    """Of each kind, made once."""

    def __missing__(self, kind: type) -> str:
        self[kind] = _name(kind)
        return self[kind]


class _ReaderOf(dict[type, Callable[[Any, Inside], Any] | None]):
    """Of each kind, looked for once."""

    def __missing__(self, kind: type) -> Callable[[Any, Inside], Any] | None:
        self[kind] = _reader_of(kind)
        return self[kind]


def _reader_of(kind: type) -> Callable[[Any, Inside], Any] | None:
    for readers in (_STILL_BY_KIND, _MOVING_BY_KIND):
        for known, reader in readers.items():
            if issubclass(kind, known):
                return reader
    if kind in BOUND:
        return _bound
    if loaders.is_iterator(kind):
        return _loading
    if hasattr(kind, "__next__") and not issubclass(kind, io.IOBase) and _is_written_in_c(kind):
        return iterators.placed if hasattr(kind, "__length_hint__") else _unread
    if _HASHES.fullmatch(module_of(kind)) and hasattr(kind, "hexdigest"):
        return _hashed
    return names.reader_of(kind)


def _is_written_in_c(kind: type) -> bool:
    file = getattr(sys.modules.get(module_of(kind)), "__file__", None)
    return file is None or not file.endswith(".py")


@lru_cache(maxsize=8)
def _cannot_be_read(process: int) -> str:
    """Stands for what a thing holds if nobody can tell: another in each process, also in one that
    was forked, so it is refused."""
    return f"{process} {os.urandom(8).hex()}"


def _name(kind: type) -> str:
    return f"{module_of(kind)}.{kind.__qualname__}"


def _code(value: FunctionType, inside: Inside) -> Any:
    """Where it is written, and its plain defaults. What it closes over are variables."""
    code = value.__code__
    file = os.sep.join(code.co_filename.split(os.sep)[-2:])
    plain = [one for one in value.__defaults__ or () if type(one) in PLAIN]
    consts = [one for one in code.co_consts if type(one) in PLAIN]
    told = [code.co_code, *map(repr, consts), *code.co_names]
    return [file, value.__qualname__, code.co_firstlineno, inside(plain), told]


def _method(value: MethodType, inside: Inside) -> Any:
    function = value.__func__
    told = _code(function, inside) if type(function) is FunctionType else inside(function)
    return [told, _name(type(value.__self__))]


def _partial(value: "functools.partial[Any]", inside: Inside) -> Any:
    return [inside(value.func), inside(value.args), inside(value.keywords)]


def _others(value: Any, inside: Inside) -> Any:
    if type(value) is itertools.count:
        return repr(value)
    kind = next(one for one in type(value).__mro__ if one in _MADE_OF_OTHERS)
    try:  # From Python 3.12 on it warns, and warnings may be errors; from 3.14 on most have none.
        reduced = vars(kind)["__reduce__"](value)
    except (TypeError, KeyError, Warning):
        return _cannot_be_read(os.getpid())
    return [inside(one) for one in reduced[1:]]


def _generator(value: "GeneratorType[Any, Any, Any]", inside: Inside) -> Any:
    told = _resumed(value.gi_frame, value.gi_code, inside, runs=value.gi_running)
    through = [*_gone_through(value, value.gi_frame, runs=value.gi_running)]
    draws = [value.gi_yieldfrom] if _is_followed(value.gi_yieldfrom) else []
    return [told, [inside(one) for one in (*draws, *through)]]


def _gone_through(value: object, frame: FrameType | None, *, runs: bool) -> Iterator[Any]:
    """By the loops in which a generator or a coroutine stands, as far as it can be told."""
    if frame is None or runs:
        return
    held = {id(one): one for one in gc.get_referents(value)}
    level_of = levels(frame.f_code)
    for offset, _ in live_at(frame.f_code, frame.f_lasti).loops:
        if offset in level_of:  # Whoever goes on with it meanwhile, what it held stays here.
            one = held.get(address_at(frame, level_of[offset]))
            if _is_followed(one):
                yield one


def _is_followed(value: object) -> bool:
    """A generator of a library's may count seconds."""
    if type(value) is GeneratorType:
        return not is_installed(value.gi_code.co_filename)
    return type(value) in ITERATORS


def _asynchronous(value: "AsyncGeneratorType[Any, Any]", inside: Inside) -> Any:
    told = _resumed(value.ag_frame, value.ag_code, inside, runs=value.ag_running)
    return [told, [*map(inside, _gone_through(value, value.ag_frame, runs=value.ag_running))]]


def _resumed(frame: FrameType | None, code: CodeType, inside: Inside, *, runs: bool) -> Any:
    """runs: its frame is one of the script's."""
    head = [code.co_filename.rpartition(os.sep)[2], code.co_qualname]
    if frame is None or runs:
        return [*head, frame is None]
    values = locals_of(frame)
    names = _that_count(code, frame.f_lasti, values)
    return [*head, frame.f_lasti, inside({name: values[name] for name in sorted(names)})]


def _coroutine(value: "CoroutineType[Any, Any, Any]", inside: Inside) -> Any:
    """And those that it waits for."""
    told = _resumed(value.cr_frame, value.cr_code, inside, runs=value.cr_running)
    waits = type(value.cr_await) in (CoroutineType, GeneratorType)
    through = [*map(inside, _gone_through(value, value.cr_frame, runs=value.cr_running))]
    return [told, inside(value.cr_await) if waits else None, through]


def _task(value: "asyncio.Task[Any]", inside: Inside) -> Any:
    return inside(asyncio.Task.get_coro(value))


def _that_count(code: CodeType, lasti: int, values: Collection[str]) -> set[str]:
    live, scope = live_at(code, lasti), scope_of(code)
    names = live.names | live.at_end | (live.targets - scope.given)
    read = (walk(one) for one in read_before(code.co_filename, live.call))
    names |= {node.id for nodes in read for node in nodes if isinstance(node, ast.Name)}
    return {name for name in names | {*code.co_cellvars} if name in values} - scope.clocks


def _bound(value: Any, inside: Inside) -> Any:
    """A method of what is written in C. What it belongs to is looked at by the search."""
    owner, whose = value.__self__, None
    kind: Any = type(owner)
    if issubclass(kind, type | ModuleType):
        whose = owner.__name__
    elif kind in PLAIN or issubclass(kind, names.KINDS):
        whose = inside(owner)
    return [value.__name__, _name(kind), whose]


def _cached(value: Any, inside: Inside) -> Any:
    return [[inside(one), inside(held_by(one))] for one in results_of(value)]


def results_of(value: Any) -> list[Any]:
    """What a function with a cache has returned so far, but for plain values and tuples of such:
    those are the same again, as long as they follow from what it is given."""
    given = {id(key) for table in _tables_of(value) for key in table}
    return [one for one in kept_in_cache(value) if not (id(one) in given or _is_plain(one))]


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return type(value) in PLAIN


def _tables_of(value: Any) -> list[dict[Any, Any]]:
    """By what it was given."""
    held = held_by(value)
    return [one for one in gc.get_referents(value) if type(one) is dict and one is not held]


def kept_in_cache(value: Any) -> list[Any]:
    """All of it, and what it was given for each."""
    others = gc.get_referents(value)
    if value.cache_info().maxsize is None:
        others = [one for table in _tables_of(value) for entry in table.items() for one in entry]
    skipped = (type, FunctionType, object)
    found = [one for one in others if type(one) not in skipped and one is not held_by(value)]
    return [one for one in found if not (type(one) is dict and _is_table(one))]


class Results:
    """Of a function with a cache, where they follow from more than what it was given."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def read(self, inside: Inside) -> Any:
        return inside(kept_in_cache(self._function))


def _is_table(value: dict[Any, Any]) -> bool:
    return any("_lru_list_elem" in type(one).__name__ for one in value.values())


def _future(value: "Future[Any]", inside: Inside) -> Any:
    if value.cancelled() or not value.done():
        return _cannot_be_read(os.getpid())
    error = value.exception(0)
    return inside(value.result(0) if error is None else error)


def _memory(value: Any, inside: Inside) -> Any:
    return _digest_of(bytes(value))


def _compressor(value: Any, inside: Inside) -> Any:
    return inside(value.copy().flush())


def _semaphore(value: threading.Semaphore, inside: Inside) -> Any:
    return held_by(value).get("_value")


def _simple_queue(value: "queue.SimpleQueue[Any]", inside: Inside) -> Any:
    return _cannot_be_read(os.getpid()) if value.qsize() else 0


def _flat(value: "numpy.flatiter[Any]", inside: Inside) -> Any:
    return [value.index, inside(value.base)]


def _lock(value: Any, inside: Inside) -> Any:
    return value.locked()


def _mapped(value: mmap.mmap, inside: Inside) -> Any:
    return inside(value[:65536])


def _drawn(value: SobolEngine, inside: Inside) -> Any:
    return value.num_generated


def _sequence(value: Any, inside: Inside) -> Any:
    return inside(repr(value.state))


def _unread(value: Any, inside: Inside) -> Any:
    return _cannot_be_read(os.getpid())


def _loading(value: Any, inside: Inside) -> Any:
    return loaders.yielded(value)


def _hashed(value: Any, inside: Inside) -> Any:
    return value.hexdigest()


def _variable(value: "contextvars.ContextVar[Any]", inside: Inside) -> Any:
    return inside(value.get(None))


def _context(value: contextvars.Context, inside: Inside) -> Any:
    """What its variables are while something is run in it."""
    return inside(dict(sorted((variable.name, one) for variable, one in value.items())))


def _queue(value: "queue.Queue[Any]", inside: Inside) -> Any:
    return inside([*held_by(value)["queue"]])


def _weak(value: Any, inside: Inside) -> Any:
    held = held_by(value).get("data")
    if isinstance(held, set):
        return len(held)
    live = [one() if type(one) is weakref.KeyedRef else one for one in dict(held or {}).values()]
    return inside(live)


def _reference(value: "weakref.ref[Any]", inside: Inside) -> Any:
    return inside(value())


def _users(value: Any, inside: Inside) -> Any:
    return inside(held_by(value).get("data"))


def _chain(value: Any, inside: Inside) -> Any:
    return inside(held_by(value).get("maps"))


def _mapping(value: Any, inside: Inside) -> Any:
    return inside(dict(value))


def _raised(value: BaseException, inside: Inside) -> Any:
    return inside(list(BaseException.args.__get__(value)))  # type: ignore[attr-defined]


def _file(value: Any, inside: Inside) -> Any:
    """How far it is read; of what is written no process has the same."""
    if type(value) in (io.BytesIO, io.StringIO):
        content = value.getvalue()
        return [value.tell(), _digest_of(content if type(content) is bytes else content.encode())]
    if value.closed or value.writable():
        return None
    try:
        return value.tell()
    except OSError:  # As lines of text are iterated over.
        return _cannot_be_read(os.getpid())


def _digest_of(content: bytes) -> bytes:
    """Of its ends, if it is large."""
    if len(content) > _CONTENT_MAX:
        content = content[: _CONTENT_MAX // 2] + content[-_CONTENT_MAX // 2 :]
    return xxhash.xxh3_64_digest(content)


def _contained(value: Any, inside: Inside) -> Any:
    """Of a class of the script's own that is a container: read as its base class would."""
    kind = type(value)
    if issubclass(kind, dict):
        return inside(dict(dict.items(value)))
    for base in _CONTAINERS:
        if issubclass(kind, base):
            return inside([*base.__iter__(value)])
    return None


def _forget(known: dict[int, Any], key: int, gone: object) -> None:
    known.pop(key, None)


def _key(entry: tuple[Any, Any]) -> str:
    return str(entry[0])


_Readers = dict[Any, Callable[[Any, Inside], Any]]
_STILL_BY_KIND: _Readers = {
    **names.READERS,
    FunctionType: _code,
    MethodType: _method,
    type: lambda value, inside: _name(value),
    **dict.fromkeys((staticmethod, classmethod), lambda value, inside: inside(value.__func__)),
    property: lambda value, inside: [inside(one) for one in (value.fget, value.fset, value.fdel)],
}
_MOVING_BY_KIND: _Readers = {
    **dict.fromkeys((functools.partial, functools.partialmethod), _partial),
    CACHE: _cached,
    AsyncGeneratorType: _asynchronous,
    threading.Semaphore: _semaphore,
    type(threading.Lock()): _lock,
    queue.SimpleQueue: _simple_queue,
    numpy.flatiter: _flat,
    mmap.mmap: _mapped,
    Layers: Layers.read,
    Hooked: Hooked.read,
    Crowd: Crowd.read,
    Results: Results.read,
    Future: _future,
    C_DATA: _memory,
    memoryview: _memory,
    **dict.fromkeys(_COMPRESSORS, _compressor),
    numpy.random.SeedSequence: _sequence,
    SobolEngine: _drawn,
    GeneratorType: _generator,
    CoroutineType: _coroutine,
    asyncio.Task: _task,
    **dict.fromkeys(iterators.PLACED, iterators.placed),
    **dict.fromkeys(_MADE_OF_OTHERS, _others),
    contextvars.ContextVar: _variable,
    contextvars.Context: _context,
    **dict.fromkeys(_QUEUES, _queue),
    **dict.fromkeys(_WEAK, _weak),
    weakref.ref: _reference,
    **dict.fromkeys(_USERS, _users),
    ChainMap: _chain,
    types.MappingProxyType: _mapping,
    BaseException: _raised,
    **dict.fromkeys(_FILES, _file),
}
_STILL = {*_STILL_BY_KIND.values(), _bound, names.of_function}
_MOVING = {*_MOVING_BY_KIND.values(), _loading, _hashed, _unread}
