# SPDX-License-Identifier: Apache-2.0
"""All that a script holds, at one moment: every object that its modules, frames, functions and
instances lead to, with what lies in it. Two of them tell what is another than it was.

Here nothing is left out because it seems to be of no use: what a step that is run again must find
as it was may lie anywhere. It takes as long as the script has objects, so it is for the sandbox,
where nobody waits.
"""

import array
import functools
import gc
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from types import (
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor
from xxhash import xxh3_64_intdigest

from trainmover.state import tensor_bytes
from trainmover.state.class_files import PLAIN, OwnTypes, module_of
from trainmover.state.held import CANNOT_BE_READ, held_by, locals_of, slots_in
from trainmover.state.kinds.generators import is_generator, state_of
from trainmover.torch_internals.tensors import coordinates_of, values_of

OBJECTS_MAX, ENTRIES_MAX, DEEPEST = 200_000, 20_000, 100
BYTES_MAX = 1 << 22
_RUNS = frozenset(
    {"trainmover", "logging", "threading", "thread", "socket", "selectors", "asyncio", "io", "re"}
    | {"concurrent", "subprocess", "multiprocessing", "queue", "ctypes", "importlib", "typing"}
    | {"frozen_importlib", "frozen_importlib_external", "warnings", "ast", "contextvars", "weakref"}
    | {"abc", "inspect", "linecache", "traceback"}
)
"""Of these libraries, and what they are made of in C, no object is gone into: they hold what runs,
or what was seen of it."""
_RUNS_IN_TORCH = (
    *("torch.distributed", "torch.jit", "torch.autograd.profiler", "torch.multiprocessing"),
    "torch.nn.parallel",
)
"""So do its private modules."""
_MEMORY = (bytearray, memoryview, array.array, numpy.ndarray, numpy.generic)
_SEALED = (CodeType, FrameType, TracebackType)
_ITERATORS = ("builtins", "itertools", "collections")
NO_NAMES = frozenset(
    {"__builtins__", "__warningregistry__", "__cached__", "__loader__", "__spec__"}
)


class Seen(NamedTuple):
    """An object.

    token  what it is by itself: a plain value, a hash of bytes
    parts  what it holds, by label: plain values as they are, of other objects their numbers
    within, label  where it was come upon first
    """

    value: object
    token: object
    parts: dict[str, object]
    within: int
    label: str


class _Other(int):
    """Number of an object."""


@dataclass
class Heap:
    """What was there.

    is_own   whether a file is the script's
    skip     numbers of objects that are looked after otherwise
    partial  there were more than are gone through
    """

    is_own: Callable[[str], bool]
    skip: Collection[int] = frozenset()
    seen: dict[int, Seen] = field(default_factory=dict)
    partial: bool = False

    def __post_init__(self) -> None:
        self._is_own_kind = OwnTypes(self.is_own)

    def take(self, roots: Mapping[str, object]) -> "Heap":
        """All from these on, by name; and what no name leads to, of the script's own."""
        waiting: deque[tuple[object, int, str]] = deque()
        self.seen[_ROOT] = Seen(roots, None, self._parts(roots, _ROOT, waiting), _ROOT - 1, "")
        self._go_through(waiting)
        self._go_through(deque((value, 0, _named(value)) for value in self._others()))
        return self

    def differences(self, later: "Heap") -> Iterator[tuple[str, object, object]]:
        """What is in both, and is another in the later one: path, what it was, what it is. A new
        attribute or name does not count: mostly nobody reads it before it is set again."""
        known: dict[tuple[int, int], bool] = {}
        for number, before in self.seen.items():
            after = later.seen.get(number)
            if after is None:
                continue
            if before.token != after.token:
                yield self.path(number), before.token, after.token
                continue
            for label in before.parts | after.parts:
                was = before.parts.get(label, _ABSENT)
                now = after.parts.get(label, _ABSENT)
                is_new = was is _ABSENT and (number == _ROOT or label.startswith("."))
                if not is_new and not self._same(was, now, later, known):
                    yield self.path(number) + label, self._said(was), later._said(now)

    def path(self, number: int) -> str:
        """How it is reached: `trainer.meters['loss']`."""
        labels = []
        while number in self.seen:
            one = self.seen[number]
            labels.append(one.label)
            number = one.within
        return "".join(reversed(labels))

    def _same(
        self,
        was: object,
        now: object,
        later: "Heap",
        known: dict[tuple[int, int], bool],
        depth: int = 0,
    ) -> bool:
        """Or equal to it. Of the same object what it holds is compared by itself."""
        if was is _SKIPPED or now is _SKIPPED or depth > DEEPEST:
            return True
        if not (isinstance(was, _Other) and isinstance(now, _Other)):
            return type(was) is type(now) and repr(was) == repr(now)
        if was == now:
            return True
        pair = int(was), int(now)
        if pair in known:
            return known[pair]
        known[pair] = True  # As long as nothing tells them apart.
        one, other = self.seen.get(was), later.seen.get(now)
        if one is None or other is None:
            known[pair] = one is other or self.partial or later.partial
        else:
            known[pair] = (
                type(one.value) is type(other.value)
                and one.token == other.token
                and one.parts.keys() == other.parts.keys()
                and all(
                    self._same(part, other.parts[label], later, known, depth + 1)
                    for label, part in one.parts.items()
                )
            )
        return known[pair]

    def _said(self, part: object) -> object:
        if part is _ABSENT:
            return "not there"
        if not isinstance(part, _Other):
            return part
        seen = self.seen.get(part)
        return "another" if seen is None else f"a {type(seen.value).__name__}"

    # --- what there is ----------------------------------------------------------------------------

    def _others(self) -> Iterator[object]:
        """Functions, classes and instances of the script's that the garbage collector knows of."""
        for value in gc.get_objects():
            kind = type(value)
            if kind is FunctionType:
                if self.is_own(value.__code__.co_filename):
                    yield value
                continue
            if self._is_own_kind(kind) or (issubclass(kind, type) and self._is_own_kind(value)):
                yield value

    def _go_through(self, waiting: "deque[tuple[object, int, str]]") -> None:
        while waiting:
            value, within, label = waiting.popleft()
            number = id(value)
            if number in self.seen or number in self.skip or type(value) in PLAIN:
                continue
            if len(self.seen) >= OBJECTS_MAX:
                self.partial = True
                return
            try:
                token, held = self._inside(value)
            except CANNOT_BE_READ:
                token, held = None, {}
            parts = self._parts(held, number, waiting)
            self.seen[number] = Seen(value, token, parts, within, label)

    def _parts(
        self,
        held: Mapping[str, object],
        number: int,
        waiting: "deque[tuple[object, int, str]]",
    ) -> dict[str, object]:
        parts: dict[str, object] = {}
        for name, part in held.items():
            if type(part) in PLAIN:
                parts[name] = part
            elif id(part) in self.skip:
                parts[name] = _SKIPPED
            else:
                parts[name] = _Other(id(part))
                waiting.append((part, number, name))
        return parts

    def _inside(self, value: Any) -> tuple[object, dict[str, object]]:
        """What it is by itself, and what it holds, by label."""
        kind = type(value)
        if issubclass(kind, Tensor):
            return _of_tensor(value)
        if issubclass(kind, _MEMORY):
            return _of_memory(value)
        if issubclass(kind, _SEALED):
            return None, {}
        if issubclass(kind, ModuleType):
            own = self.is_own(getattr(value, "__file__", None) or "")
            return None, _by_name(vars(value)) if own else {}
        if issubclass(kind, type):
            return None, _by_name(vars(value)) if self._is_own_kind(value) else {}
        if issubclass(kind, FunctionType):
            return None, _of_function(value)
        if is_generator(value):
            return _hashed(repr(state_of(value))), {}
        return None, self._of_instance(value, kind)

    def _of_instance(self, value: Any, kind: type) -> dict[str, object]:
        module = module_of(kind) or ""
        top, _, inside = module.partition(".")
        found = _of_container(value, kind)
        if found is None:
            found = {}
            if top.lstrip("_") in _RUNS or module.startswith(_RUNS_IN_TORCH):
                return {}
            if top == "torch" and inside.startswith("_"):
                return {}
        found |= {f".{name}": part for name, part in [*held_by(value).items()]}
        found |= {f".{name}": part for name, part in slots_in(value).items()}
        if self._is_own_kind(kind):
            found["'s class"] = kind
        return found | _of_others(value, kind)


_ABSENT, _SKIPPED = _Other(0), _Other(-1)
_ROOT = 0
"""Number of what has no object: all names together."""


def _of_tensor(value: Tensor) -> tuple[object, dict[str, object]]:
    found = {f".{name}": part for name, part in [*held_by(value).items()]}
    if value.is_leaf and value.requires_grad and value.grad is not None:
        found[".grad"] = value.grad
    with torch.no_grad():
        token = tuple(_hash_of(one) for one in _bytes_of(value))
    return (token, tuple(value.shape), value.dtype, value.requires_grad), found


def _bytes_of(value: Tensor) -> list[Tensor]:
    """What its bytes are in; of a large one every few. Nothing of what nobody can read."""
    if value.layout == torch.sparse_coo:
        return [coordinates_of(value), values_of(value)]
    if type(value) not in (Tensor, torch.nn.Parameter) or not tensor_bytes.is_plain(value):
        return []
    every = -(-value.nbytes // BYTES_MAX)
    return [value if every <= 1 else value.detach().reshape(-1)[::every]]


def _hash_of(value: Tensor) -> int:
    return xxh3_64_intdigest(tensor_bytes.view_bytes(value))


def _of_memory(value: Any) -> tuple[object, dict[str, object]]:
    """Of a large one every few: a dataset may lie in it, or in the file behind it."""
    if isinstance(value, numpy.ndarray):
        if value.dtype.hasobject:
            return value.shape, {f"[{n}]": one for n, one in enumerate(value.flat[:ENTRIES_MAX])}
        every = -(-value.nbytes // BYTES_MAX)
        part = value if every <= 1 else value.flat[::every]
        return (value.shape, str(value.dtype), _hashed(part.tobytes())), {}
    if isinstance(value, numpy.generic):
        return _hashed(value.tobytes()), {}
    every = -(-memoryview(value).nbytes // BYTES_MAX) or 1
    return (len(value), _hashed(memoryview(value[::every]).tobytes())), {}


def _of_function(value: FunctionType) -> dict[str, object]:
    names = value.__code__.co_freevars
    cells = zip(names, value.__closure__ or (), strict=False)
    found: dict[str, object] = {f"'s {name}": cell for name, cell in cells}
    found |= {f".{name}": part for name, part in vars(value).items()}
    found |= {f"({n})": one for n, one in enumerate(value.__defaults__ or ())}
    return found | {f"({name})": one for name, one in (value.__kwdefaults__ or {}).items()}


def _of_container(value: Any, kind: type) -> dict[str, object] | None:
    """Of a very long list every few; of what else is so long the first."""
    if issubclass(kind, dict):
        found: dict[str, object] = {}
        for n, (key, part) in enumerate(islice([*dict.items(value)], ENTRIES_MAX)):
            found[f"[{key!r}]" if type(key) in PLAIN else f"[{n}]"] = part
        return found | {"'s order": _hashed(repr([*found]))}
    if issubclass(kind, list | tuple):
        every = [*(list if issubclass(kind, list) else tuple).__iter__(value)]
        parts = islice(enumerate(every), 0, None, max(1, len(every) // ENTRIES_MAX))
        return {f"[{n}]": part for n, part in parts} | {"'s length": len(every)}
    if issubclass(kind, deque):
        entries = islice([*deque.__iter__(value)], ENTRIES_MAX)
        return {f"[{n}]": part for n, part in enumerate(entries)}
    if issubclass(kind, set | frozenset):
        whole = set if issubclass(kind, set) else frozenset
        members = islice([*whole.__iter__(value)], ENTRIES_MAX)
        return {f"[{one!r}]" if type(one) in PLAIN else f"[{id(one)}]": one for one in members}
    return None


def _of_others(value: Any, kind: type) -> dict[str, object]:
    """What runs, as far as it says where it is."""
    of_kind = next((read for one, read in _READERS.items() if issubclass(kind, one)), None)
    if of_kind is not None:
        return of_kind(value)
    if kind.__module__ in _ITERATORS and hasattr(kind, "__next__"):
        return _place_of(value)
    return {
        f".{name}": part
        for base in kind.__mro__
        for name, member in vars(base).items()
        if type(member) is MemberDescriptorType and type(part := _read(member, value)) in PLAIN
    }


def _of_cell(cell: CellType) -> dict[str, object]:
    with suppress(ValueError):
        return {"": cell.cell_contents}
    return {}


def _of_generator(generator: Any) -> dict[str, object]:
    frame = generator.gi_frame
    if frame is None or generator.gi_running:
        return {"'s place": -1}
    inside = {f"'s {name}": part for name, part in locals_of(frame).items()}
    return inside | {"'s place": frame.f_lasti}


_READERS: dict[type, Callable[[Any], dict[str, object]]] = {
    CellType: _of_cell,
    MethodType: lambda one: {".__self__": one.__self__, "()": one.__func__},
    functools.partial: lambda one: {"()": one.func, ".args": one.args, ".keywords": one.keywords},
    weakref.ref: lambda one: {"": one()},
    property: lambda one: {".get": one.fget, ".set": one.fset},
    staticmethod: lambda one: {"()": one.__func__},
    classmethod: lambda one: {"()": one.__func__},
    GeneratorType: _of_generator,
}


def _read(member: MemberDescriptorType, value: object) -> object:
    try:
        return member.__get__(value)
    except CANNOT_BE_READ:
        return _ABSENT


def _place_of(iterator: Any) -> dict[str, object]:
    """As it would be pickled, what is still possible of most."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        reduced = iterator.__reduce__()
    parts = [*reduced[1], *reduced[2:]] if isinstance(reduced, tuple) else []
    return {f"'s part {n}": part for n, part in enumerate(parts)}


def _by_name(held: Mapping[str, object]) -> dict[str, object]:
    return {f".{name}": part for name, part in [*held.items()] if name not in NO_NAMES}


def _named(value: object) -> str:
    if issubclass(type(value), FunctionType | type):
        return f"{value.__qualname__}"  # type: ignore[attr-defined]
    return f"an object of {type(value).__name__}"


def _hashed(data: "str | bytes") -> int:
    return xxh3_64_intdigest(data.encode() if isinstance(data, str) else data)
