# SPDX-License-Identifier: Apache-2.0
"""What a pass is made of, where a script makes its data while it trains: the examples that are hard
at the moment, labels by the model itself, a pool that grows.

Who takes a rank runs the lines that make them again, with a model that is not that of then, and
what they choose lies in no variable once the loader is made. So a place in a pass has hashes of
what that goes over, and whoever resumes it compares. Of what was there before the first step it
says which it is: that is made alike for a rank wherever it runs, and what changes in it is a
variable. Of anything else it has what samples are made of: containers, arrays, tensors, numbers, in
datasets, samplers and transforms. Objects of other kinds are the search's (`state/script`).
"""

import functools
import itertools
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import FunctionType, MethodType
from typing import Any

import numpy
import xxhash
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from trainmover.state import tensor_bytes
from trainmover.state.encode import as_local
from trainmover.state.script.search.contents import CONTAINERS, entries_of
from trainmover.state.script.things.held import CANNOT_BE_READ, all_held_by, closed_over
from trainmover.state.script.things.readers import written
from trainmover.state.script.values import PLAIN, entry_of
from trainmover.torch_internals.modules import OF_TORCH
from trainmover.worker.data.loader_parts import parts
from trainmover.worker.data.trail import Trail

Number = Callable[[object], int | None]
_HOLDERS = (Dataset, Sampler, nn.Module)
"""Objects of which all attributes count."""
_LONG_S = 1e7
_THERE = b"was there:"
_DEPTH_MAX = 8
_ENTRIES_MAX = 4096
_OBJECTS_MAX = 20_000
_WHOLE_BYTES_MAX = 64 * 1024 * 1024
"""Of larger memory, as of longer lists of objects, so many values are looked at."""


class MadeOf:
    """Of one process's passes.

    is_open  no step has begun: what passes go over was there before the first one
    """

    def __init__(self) -> None:
        self.is_open = True
        self._known: dict[int, tuple[int, weakref.ref[Any]]] = {}
        self._numbers = itertools.count()  # Never one twice, whatever is gone by now.

    def note(self, loader: Any) -> None:
        """A pass over it begins: if no step has, it was there before, with all that is in it."""
        left = [*_roots(loader).values(), loader] if self.is_open else []
        seen: dict[int, Any] = {}
        while left and len(seen) < _OBJECTS_MAX:
            one = left.pop()
            if id(one) in seen or type(one) in PLAIN:
                continue
            seen[id(one)] = one
            with suppress(TypeError):  # A list, say: whatever holds it is known.
                if self.number(one) is None and not issubclass(type(one), Sampler):
                    reference = weakref.ref(one)
                    self._known[id(one)] = next(self._numbers), reference
            left += _inside(one)

    def number(self, value: object) -> int | None:
        """Of what was there, the same in all processes; None: it was not."""
        number, reference = self._known.get(id(value), (0, None))
        return number if reference is not None and reference() is value else None

    def told(self, loader: Any) -> dict[str, bytes]:
        """Hashes by place in the loader: of each of its parts, and of the attributes of those that
        are new; and which loader it is, if that was there."""
        return self._read(loader, self.number, self.number)

    def others(self, loader: Any, theirs: dict[str, bytes]) -> list[str]:
        """Places where there is something else than was told of another loader.

        Where a loop makes its loader anew in each round, who takes a rank may stand in the first
        one: what was there is made new for the rank, and both may be the same. Or it has made the
        first one again, and of what was there for the rank nothing can be said.
        """
        readings = [
            self.told(loader),
            self._read(loader, _nothing, self.number),
            self._read(loader, _nothing, _nothing),
        ]
        there = {path for one in readings for path in one}
        return [
            path
            for path in sorted(theirs.keys() & there)  # One may come with the first sample.
            if theirs[path] not in [one.get(path) for one in readings]
            and _is_there(theirs[path]) <= _is_there(readings[0].get(path, b""))
        ]

    def _read(self, loader: Any, part_of: Number, number: Number) -> dict[str, bytes]:
        """part_of, number: which are known, of its parts and of what is in them"""
        hashes = _Hashes(number, getattr(loader, "dataset", None))
        found: dict[str, bytes] = {}
        if isinstance(loader, DataLoader) and (whole := part_of(loader)) is not None:
            found["loader"] = _was_there(whole)
        for path, part in _roots(loader).items():
            if (known := part_of(part)) is not None:
                found[path] = _was_there(known)
            elif issubclass(type(part), _HOLDERS):
                found[path] = _hash(type(part).__qualname__.encode())
                for name, value in _attributes(part).items():
                    found[f"{path}.{name}"] = hashes.of(value)
            else:
                found[path] = hashes.of(part, part=True)
        return found


def _nothing(_: object) -> None:
    return None


def _was_there(number: int) -> bytes:
    return b"%b %d" % (_THERE, number)


def _is_there(told: bytes) -> bool:
    return told.startswith(_THERE)


def _roots(loader: Any) -> dict[str, Any]:
    if not isinstance(loader, DataLoader):
        return {"it": loader}
    found = {"dataset": loader.dataset, "collate_fn": loader.collate_fn, **dict(parts(loader)[1:])}
    return {path: one.inner if isinstance(one, Trail) else one for path, one in found.items()}


def _attributes(value: Any) -> dict[str, Any]:
    """Of a module no parameters and no buffers: these are tracked, or the search looks at them. A
    number that is the time of now only tells that."""
    held = all_held_by(value)
    return {
        str(name): one
        for name, one in held.items()
        if name not in OF_TORCH and not (type(one) is float and abs(one - time.time()) < _LONG_S)
    }


def _inside(value: Any) -> list[Any]:
    """What it holds, without a look at more than that."""
    kind = type(value)
    if issubclass(kind, dict):
        return [part for entry in _some([*dict.items(value)]) for part in entry]
    if issubclass(kind, CONTAINERS):
        return _some(entries_of(value))
    if issubclass(kind, _HOLDERS):
        return [*_attributes(value).values()]
    if issubclass(kind, functools.partial):
        return [value.func, value.args, value.keywords]
    if kind is not FunctionType:
        return []
    return [*closed_over(value).values(), value.__defaults__, value.__kwdefaults__]


def _some(entries: list[Any]) -> list[Any]:
    return entries[:: -(-len(entries) // _ENTRIES_MAX) or 1]


class _Hashes:
    """Equal in all processes whose values are equal."""

    def __init__(self, number: Number, data: object) -> None:
        """data: is told by itself, and lies in samplers too"""
        self._number, self._data = number, data
        self._seen: dict[int, tuple[int, Any]] = {}

    def of(self, value: Any, depth: int = 0, *, part: bool = False) -> bytes:
        """part: of a loader itself"""
        if type(value) in PLAIN:
            return _hash(b"%a" % (value,))
        if value is self._data and not part:
            return _hash(b"data")
        if (number := self._number(value)) is not None:
            return _was_there(number)
        if id(value) in self._seen:
            return _hash(b"seen %d" % self._seen[id(value)][0])
        self._seen[id(value)] = len(self._seen), value  # Held, so that no other gets its number.
        try:
            return _hash(b"".join([self._own(value), *self._below(value, depth)]))
        except CANNOT_BE_READ:
            return _hash(type(value).__qualname__.encode())

    def _below(self, value: Any, depth: int) -> Iterable[bytes]:
        if depth > _DEPTH_MAX:
            return []
        kind = type(value)
        if issubclass(kind, _HOLDERS):
            return self._named(sorted(_attributes(value).items()), depth)
        is_set, is_dict = issubclass(kind, set | frozenset), issubclass(kind, dict)
        entries = entries_of(value) if issubclass(kind, CONTAINERS) and not is_dict else None
        if entries is not None and (plain := _of_plain(entries, in_any_order=is_set)):
            return [plain]
        hashes = [self.of(one, depth + 1) for one in _inside(value)]
        return sorted(hashes) if is_set else hashes

    def _named(self, entries: list[tuple[str, Any]], depth: int) -> Iterator[bytes]:
        for name, one in entries:
            yield name.encode("utf8", "surrogatepass")
            yield self.of(one, depth + 1)

    def _own(self, value: Any) -> bytes:
        """What it is itself, beside what it holds."""
        kind = type(value)
        name = kind.__qualname__.encode()
        if issubclass(kind, nn.Parameter):
            return name
        if issubclass(kind, Tensor):
            return name + _of_tensor(value)
        if issubclass(kind, numpy.ndarray):
            return name + self._array(value)
        if issubclass(kind, CONTAINERS):
            return b"%b %d" % (name, len(value))
        if kind is FunctionType:
            return written(value.__code__)
        if kind is MethodType:
            return written(value.__func__.__code__) if hasattr(value.__func__, "__code__") else name
        if issubclass(kind, (*_HOLDERS, functools.partial, os.PathLike)):
            return name
        return _hash(repr(entry_of(value)).encode("utf8", "surrogatepass"))

    def _array(self, value: "numpy.ndarray[Any, Any]") -> bytes:
        if isinstance(value, numpy.ma.MaskedArray):
            return _of_array(value.data) + _of_array(numpy.ma.getmaskarray(value))
        if value.dtype.hasobject:
            return self.of(_some(value.reshape(-1).tolist()), _DEPTH_MAX - 1)
        return _of_array(value)


def _of_plain(entries: list[Any], *, in_any_order: bool) -> bytes:
    """Of numbers and words all of them, however many; b"" where there are others."""
    kinds = {*map(type, entries)}
    if not kinds <= PLAIN and not all(issubclass(kind, numpy.number) for kind in kinds):
        return b""
    told = sorted(map(repr, entries)) if in_any_order else entries
    return _hash(repr(told).encode("utf8", "surrogatepass"))


def _of_tensor(value: Tensor) -> bytes:
    local = as_local(value).detach()
    head = f"{value.dtype} {tuple(value.shape)}".encode()
    if not tensor_bytes.is_plain(local):
        return head
    if local.nbytes > _WHOLE_BYTES_MAX:
        places = [slice(None, None, stride) for stride in _strides(tuple(local.shape))]
        local = local[tuple(places)]
    return head + _hash(tensor_bytes.view_bytes(local.cpu()))


def _of_array(value: "numpy.ndarray[Any, Any]") -> bytes:
    head = f"{value.dtype} {value.shape}".encode()
    if value.nbytes > _WHOLE_BYTES_MAX:
        value = value[tuple(slice(None, None, stride) for stride in _strides(value.shape))]
    return head + _hash(numpy.ascontiguousarray(value).reshape(-1).view(numpy.uint8).data)


def _strides(shape: tuple[int, ...]) -> Iterator[int]:
    """Of each dimension, so that at most so many values are left, or one of the first."""
    left = _ENTRIES_MAX
    for size in shape:
        taken = max(1, min(size, left))
        left = max(1, left // taken)
        yield -(-size // taken) or 1


def _hash(data: Any) -> bytes:
    return xxhash.xxh3_64_digest(data)
