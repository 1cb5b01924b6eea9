# SPDX-License-Identifier: Apache-2.0
"""What is read of each kind of thing: plain values that stand for it, the same in all processes
that have done the same. Still ones are told by their name, moving ones by how far they are."""

import ast
import asyncio
import contextlib
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
from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from functools import lru_cache
from types import (
    AsyncGeneratorType,
    BuiltinMethodType,
    CellType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

import numpy
import torch
import xxhash
from torch import UntypedStorage
from torch.quasirandom import SobolEngine
from torch.storage import TypedStorage
from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

from trainmover.installed import is_installed
from trainmover.state.script.code.source import scope_of
from trainmover.state.script.code.syntax import walk
from trainmover.state.script.fold import iterators, names
from trainmover.state.script.fold.kinds import PLAIN
from trainmover.state.script.fold.there import entry_of as entry_of_there
from trainmover.state.script.place.liveness import live_at
from trainmover.state.script.place.operands import read_before
from trainmover.state.script.place.stacked import address_at, levels
from trainmover.state.script.things import of_python
from trainmover.state.script.things.crowds import Crowd
from trainmover.state.script.things.held import all_held_by, held_by, locals_of
from trainmover.state.script.things.layers import Hooked, Layers
from trainmover.state.script.things.libraries import is_of_library, module_of, only_shows
from trainmover.state.script.things.of_python import Inside, Reader
from trainmover.torch_internals import loaders

_OF_EXCEPTIONS = ("args", "__cause__", "__context__")
_LOAD = ("torch.utils.data", "torchdata")
"""Packages of loaders: where those stand is known."""
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
_CALLED = BOUND | {FunctionType, functools.partial}
CACHE = type(functools.lru_cache(len))
CONTAINERS = (dict, list, tuple, deque, set, frozenset)
_COMPRESSORS = (type(zlib.compressobj()), type(zlib.decompressobj()))
C_DATA = ctypes.c_int.__mro__[-2]
_BUFFERED = (io.BufferedReader, io.BufferedWriter, io.BufferedRandom)
_FILES = (io.TextIOWrapper, *_BUFFERED, io.FileIO, io.BytesIO, io.StringIO)
_HASHES = re.compile(r"_(hashlib|md5|sha\d*|blake2|xxhash)|xxhash\b.*")
_WEAK = (
    *(weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet),
    *(WeakIdKeyDictionary, WeakTensorKeyDictionary),
)


class NameOf(dict[type, str]):
    """Of each kind, made once."""

    def __missing__(self, kind: type) -> str:
        self[kind] = name_of(kind)
        return self[kind]


class ReaderOf(dict[type, Reader | None]):
    """Of each kind, looked for once."""

    def __missing__(self, kind: type) -> Reader | None:
        self[kind] = _reader_of(kind)
        return self[kind]


def _reader_of(kind: type) -> Reader | None:
    for readers in (_STILL_BY_KIND, _MOVING_BY_KIND):
        for known, reader in readers.items():
            if issubclass(kind, known):
                return reader
    if kind in BOUND:
        return _bound
    if loaders.is_iterator(kind):
        return _loading
    if issubclass(kind, io.IOBase):
        return _stream if _is_pythons(kind) else None
    if hasattr(kind, "__next__") and kind not in weakref.ProxyTypes:
        return _iterator_of(kind)
    if _HASHES.fullmatch(module_of(kind)) and hasattr(kind, "hexdigest"):
        return _hashed
    return names.reader_of(kind)


def _iterator_of(kind: type) -> Reader | None:
    """Of one that has no reader of its own. What the script's own have is looked at one by one."""
    goes_on = next(vars(one)["__next__"] for one in kind.__mro__ if "__next__" in vars(one))
    if type(goes_on) is not FunctionType:
        return iterators.placed if hasattr(kind, "__length_hint__") else _unread
    if _is_pythons(kind):
        return _going_on
    is_known = only_shows(kind) or any(module_of(one).startswith(_LOAD) for one in kind.__mro__)
    return _drawing if is_of_library(kind) and not is_known else None


def _is_pythons(kind: type) -> bool:
    """Whether it is of Python's library, or numpy's."""
    return module_of(kind).partition(".")[0] in sys.stdlib_module_names | {"numpy"}


@lru_cache(maxsize=8)
def _cannot_be_read(process: int) -> str:
    """Stands for what a thing holds if nobody can tell: another in each process, also in one that
    was forked, so it is refused."""
    return f"{process} {os.urandom(8).hex()}"


def name_of(kind: type) -> str:
    return f"{module_of(kind)}.{kind.__qualname__}"


def _code(value: FunctionType, inside: Inside) -> Any:
    """Where it is written, and its plain defaults. What it closes over are variables."""
    code = value.__code__
    plain = [one for one in value.__defaults__ or () if type(one) in PLAIN]
    if value.__kwdefaults__:
        plain += [one for _, one in sorted(value.__kwdefaults__.items()) if type(one) in PLAIN]
    return [value.__qualname__, inside(plain), written(code)]


def written(code: CodeType) -> bytes:
    """A hash: the same line may have several functions, and what `eval` has made none."""
    reference, known = _WRITTEN.get(id(code), (None, b""))
    if reference is None or reference() is not code:
        file = os.sep.join(code.co_filename.split(os.sep)[-2:])
        constants = [*map(_constant, code.co_consts)]
        told = [file, code.co_firstlineno, code.co_code, constants, code.co_names]
        known = xxhash.xxh3_64_digest(repr(told).encode("utf8", "surrogatepass"))
        gone = functools.partial(_WRITTEN.pop, id(code))
        _WRITTEN[id(code)] = weakref.ref(code, gone), known
    return known


_WRITTEN: dict[int, tuple[weakref.ref[CodeType], bytes]] = {}


def _constant(value: object) -> Any:
    """In a function: of sets the order is chance."""
    if isinstance(value, CodeType):
        return written(value)
    if isinstance(value, tuple | frozenset):
        every = [*map(_constant, value)]
        return sorted(every, key=repr) if isinstance(value, frozenset) else every
    return repr(value)


def _method(value: MethodType, inside: Inside) -> Any:
    function = value.__func__
    told = _code(function, inside) if type(function) is FunctionType else inside(function)
    return [told, name_of(type(value.__self__))]


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
    names, scope = _that_count(code, frame.f_lasti, values), scope_of(code)
    held = {name: values[name] for name in sorted(names - scope.there)}
    times = [[name, *entry_of_there(values[name])[:2]] for name in sorted(names & scope.there)]
    return [*head, frame.f_lasti, inside(held), *times]


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
    return {name for name in names | {*code.co_cellvars} if name in values} - (
        scope.clocks - scope.there
    )


def _bound(value: Any, inside: Inside) -> Any:
    """A method of what is written in C. What it belongs to is looked at by the search."""
    owner, whose = value.__self__, None
    kind: Any = type(owner)
    if issubclass(kind, type | ModuleType):
        whose = owner.__name__
    elif kind in PLAIN or issubclass(kind, (frozenset, *names.KINDS)):
        whose = inside(owner)
    return [value.__name__, name_of(kind), whose]


def _cached(value: Any, inside: Inside) -> Any:
    """The function, which is among its attributes, and what it has kept."""
    kept = [[inside(one), inside(held_by(one))] for one in results_of(value)]
    return [inside(held_by(value).get("__wrapped__")), kept]


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
    """Of a function with a cache, where they follow from more than what it was given.

    counted  whether the script asks how often it was called, too
    """

    def __init__(self, function: Any, *, counted: bool = False) -> None:
        self._function, self._counted = function, counted

    def read(self, inside: Inside) -> Any:
        kept = inside(kept_in_cache(self._function))
        return [kept, [*self._function.cache_info()]] if self._counted else kept


def _is_table(value: dict[Any, Any]) -> bool:
    return any("_lru_list_elem" in type(one).__name__ for one in value.values())


def _future(value: "Future[Any]", inside: Inside) -> Any:
    if value.cancelled() or not value.done():
        return _cannot_be_read(os.getpid())
    error = value.exception(0)
    return inside(value.result(0) if error is None else error)


def _loop(value: asyncio.AbstractEventLoop, inside: Inside) -> Any:
    """Its tasks, in the order in which they were made, and what the script has it call next."""
    tasks = sorted(filter(_is_own, asyncio.all_tasks(value)), key=_made_at)
    own = asyncio.current_task(value)
    called = [[one._callback, one._args] for one in [*getattr(value, "_ready", ())]]
    called = [one for one in called if type(one[0]) in _CALLED and not _is_asynchronous(one[0])]
    return [inside([one for one in tasks if one is not own]), inside(called)]


def _is_own(task: "asyncio.Task[Any]") -> bool:
    """A library's may count connections, or seconds."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and not is_installed(code.co_filename)


def _made_at(task: "asyncio.Task[Any]") -> tuple[str, int, int, str]:
    """Where it is written; of several, the one that was made first."""
    code = task.get_coro().cr_code  # type: ignore[union-attr]
    name = task.get_name()
    return code.co_filename.rpartition(os.sep)[2], code.co_firstlineno, len(name), name


def _is_asynchronous(function: Any) -> bool:
    """One of asyncio's own."""
    return str(getattr(function, "__module__", "")).partition(".")[0] in ("asyncio", "_asyncio")


def _promised(value: "asyncio.Future[Any]", inside: Inside) -> Any:
    """By its attributes: whose exception was asked for is no more said to be forgotten."""
    if value.cancelled() or not value.done():
        return value.cancelled()
    return [inside(value._exception), inside(value._result)]  # type: ignore[attr-defined]


def _memory(value: Any, inside: Inside) -> Any:
    return _digest_of(bytes(value))


def _compressor(value: Any, inside: Inside) -> Any:
    return inside(value.copy().flush())


def _simple_queue(value: "queue.SimpleQueue[Any]", inside: Inside) -> Any:
    return _cannot_be_read(os.getpid()) if value.qsize() else 0


def _flat(value: "numpy.flatiter[Any]", inside: Inside) -> Any:
    return [value.index, inside(value.base)]


def _storage(value: Any, inside: Inside) -> Any:
    whole = value.untyped() if isinstance(value, TypedStorage) else value  # type: ignore[no-untyped-call]
    return inside(torch.empty(0, dtype=torch.uint8, device=whole.device).set_(whole))


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


def _going_on(value: Any, inside: Inside) -> Any:
    """An iterator that is written in Python: by what it has."""
    held = all_held_by(value)
    if not any(type(one) in (*PLAIN, *CONTAINERS) or _moves(type(one)) for one in held.values()):
        return _cannot_be_read(os.getpid())
    return [[name, inside(one)] for name, one in sorted(held.items())]


def _drawing(value: Any, inside: Inside) -> Any:
    """One of another library: by the iterators that it draws from. All else that it stores to is
    known by its source."""
    held = all_held_by(value)
    return [[name, inside(one)] for name, one in sorted(held.items()) if _is_followed(one)]


def _moves(kind: type) -> bool:
    return _reader_of(kind) in MOVING


def _loading(value: Any, inside: Inside) -> Any:
    return loaders.yielded(value)


def _hashed(value: Any, inside: Inside) -> Any:
    return value.hexdigest()


def _variable(value: "contextvars.ContextVar[Any]", inside: Inside) -> Any:
    return inside(value.get(None))


def _context(value: contextvars.Context, inside: Inside) -> Any:
    """What its variables are while something is run in it."""
    return inside(dict(sorted((variable.name, one) for variable, one in value.items())))


def _weak(value: Any, inside: Inside) -> Any:
    held = held_by(value).get("data")
    if isinstance(held, set):
        return len(held)
    live = [one() if type(one) is weakref.KeyedRef else one for one in dict(held or {}).values()]
    return inside(live)


def _cell(value: CellType, inside: Inside) -> Any:
    try:
        return [inside(value.cell_contents)]
    except ValueError:
        return []


def _reference(value: "weakref.ref[Any]", inside: Inside) -> Any:
    return inside(value())


def _mapping(value: Any, inside: Inside) -> Any:
    return inside(dict(value))


def _raised(value: BaseException, inside: Inside) -> Any:
    """What was noted on it, and what it came of."""
    args, *came_of = [vars(BaseException)[name].__get__(value) for name in _OF_EXCEPTIONS]
    return [inside(one) for one in (list(args), held_by(value).get("__notes__"), *came_of)]


def _file(value: Any, inside: Inside) -> Any:
    """How far it is read; of what is written no process has the same, if that is not in memory."""
    memory = value if value.closed else _memory_of(value)
    if type(memory) in (io.BytesIO, io.StringIO):
        if isinstance(value, io.TextIOWrapper) and value.writable():
            return _cannot_be_read(os.getpid())  # To see what waits in it would write it.
        content = memory.getvalue()
        return [value.tell(), _digest_of(content if type(content) is bytes else content.encode())]
    if value.closed or value.writable():
        return None
    try:
        return value.tell()
    except OSError:  # As lines of text are iterated over.
        return _cannot_be_read(os.getpid())


def _stream(value: Any, inside: Inside) -> Any:
    """Of what unpacks another as it is read: how far it is read."""
    try:
        if value.closed or value.writable():
            return None
        return value.tell()
    except (OSError, ValueError, AttributeError):  # As one that a network gives.
        return _cannot_be_read(os.getpid())


def _memory_of(value: Any) -> Any:
    """What lies below all else."""
    if isinstance(value, io.TextIOWrapper):
        return _memory_of(value.buffer)
    return _memory_of(value.raw) if isinstance(value, _BUFFERED) else value


def _digest_of(content: bytes) -> bytes:
    """Of its ends, if it is large."""
    if len(content) > _CONTENT_MAX:
        content = content[: _CONTENT_MAX // 2] + content[-_CONTENT_MAX // 2 :]
    return xxhash.xxh3_64_digest(content)


_Readers = dict[Any, Reader]
_STILL_BY_KIND: _Readers = {
    **names.READERS,
    FunctionType: _code,
    re.Match: lambda value, inside: [inside(value.string), inside(value.regs)],
    MethodType: _method,
    type: lambda value, inside: name_of(value),
    **dict.fromkeys((staticmethod, classmethod), lambda value, inside: inside(value.__func__)),
    property: lambda value, inside: [inside(one) for one in (value.fget, value.fset, value.fdel)],
}
_MOVING_BY_KIND: _Readers = {
    **dict.fromkeys((functools.partial, functools.partialmethod), _partial),
    contextlib.nullcontext: lambda value, inside: inside(value.enter_result),
    CACHE: _cached,
    AsyncGeneratorType: _asynchronous,
    type(threading.Lock()): _lock,
    queue.SimpleQueue: _simple_queue,
    numpy.flatiter: _flat,
    numpy.nditer: lambda value, inside: value.iterindex,
    numpy.broadcast: lambda value, inside: value.index,
    **dict.fromkeys((TypedStorage, UntypedStorage), _storage),
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
    asyncio.AbstractEventLoop: _loop,
    asyncio.Task: _task,
    asyncio.Future: _promised,
    **dict.fromkeys(iterators.PLACED, iterators.placed),
    **dict.fromkeys(_MADE_OF_OTHERS, _others),
    contextvars.ContextVar: _variable,
    contextvars.Context: _context,
    **of_python.READERS,
    **dict.fromkeys(_WEAK, _weak),
    weakref.ref: _reference,
    CellType: _cell,
    types.MappingProxyType: _mapping,
    BaseException: _raised,
    **dict.fromkeys(_FILES, _file),
}
STILL = {*_STILL_BY_KIND.values(), _bound, names.of_function}
MOVING = {*_MOVING_BY_KIND.values(), _loading, _hashed, _unread, _going_on, _drawing, _stream}
