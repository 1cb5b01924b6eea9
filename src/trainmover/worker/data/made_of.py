"""What a pass is made of, where a script makes its data while it trains: the examples that are hard
at the moment, labels by the model itself, a pool that grows.

Who takes a rank runs the lines that make them again, with a model that is not that of then, and
what they choose lies in no variable once the loader is made. So a pass over data that was not there
before the first step has hashes of it in its position, and whoever resumes it compares. What was
there before is made alike for a rank wherever it runs; what changes in it is a variable.
"""

import functools
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy
import xxhash
from torch import Tensor, nn
from torch.utils.data import DataLoader

from trainmover.errors import UserError
from trainmover.state import tensor_bytes
from trainmover.state.encode import as_local, encode
from trainmover.state.kinds.generators import is_generator
from trainmover.state.script.things.held import closed_over, held_by
from trainmover.worker.data.loader_parts import NUMBERS, counting, parts
from trainmover.worker.data.trail import Trail

_PLAIN = frozenset({bool, int, float, str, bytes, type(None), complex})
_LISTS = (list, tuple, deque, set, frozenset)
_DEPTH_MAX = 8
_ENTRIES_MAX = 4096
_WHOLE_BYTES_MAX = 64 * 1024 * 1024
"""Of larger memory, as of longer lists of objects, so many values are looked at."""


class MadeOf:
    """Of one process's passes."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def note(self, loader: Any) -> None:
        """It was there before the first step, with all that is in it."""
        found: list[Any] = []
        for part in _roots(loader).values():
            _Hashes({}, found).of(part)
        for one in found:
            try:
                self._known[id(one)] = weakref.ref(one)
            except TypeError:  # A list, say: whatever holds it is known. Of the loader see below.
                continue
        if not isinstance(loader, DataLoader):
            self._known[id(loader)] = lambda: loader

    def is_new(self, value: object) -> bool:
        """Whether it was not there before the first step."""
        return not _Hashes(self._known, []).knows(value)

    def told(self, loader: Any) -> dict[str, bytes]:
        """Hashes of what was not, by its place in the loader; {} if all was."""
        hashes = _Hashes(self._known, [])
        carried = {id(part): vars(part) for _, part in counting(loader)}
        found: dict[str, bytes] = {}
        for path, part in _roots(loader).items():
            if hashes.knows(part):
                continue
            held = None if type(part) in (*_LISTS, dict) else held_by(part)
            if not held:
                found[path] = hashes.of(part)
                continue
            for name, value in held.items():
                if not (id(part) in carried and isinstance(value, NUMBERS)):
                    found[f"{path}.{name}"] = hashes.of(value)
        return found


def _roots(loader: Any) -> dict[str, Any]:
    if not isinstance(loader, DataLoader):
        return {"it": loader}
    found = {"dataset": loader.dataset, "collate_fn": loader.collate_fn, **dict(parts(loader)[1:])}
    return {path: one.inner if isinstance(one, Trail) else one for path, one in found.items()}


class _Hashes:
    """known: objects that count as they are. found: gets all others that are looked into"""

    def __init__(self, known: Mapping[int, Any], found: list[Any]) -> None:
        self._known, self._found = known, found
        self._seen: dict[int, Any] = {}

    def knows(self, value: object) -> bool:
        reference = self._known.get(id(value))
        return reference is not None and reference() is value

    def of(self, value: Any, depth: int = 0) -> bytes:
        """Equal in all processes whose values are equal."""
        kind = type(value)
        if kind in _PLAIN:
            return _hash(repr(value).encode("utf8", "surrogatepass"))
        if (
            id(value) in self._seen
            or depth > _DEPTH_MAX
            or self.knows(value)
            or is_generator(value)
        ):
            return _hash(kind.__qualname__.encode())  # Of a generator the position has the state.
        self._seen[id(value)] = value  # Held, so that no other gets its number meanwhile.
        self._found.append(value)
        if isinstance(value, Tensor):
            return _of_tensor(value)
        if isinstance(value, numpy.ndarray) and not value.dtype.hasobject:
            return _of_array(value)
        return _hash(b"".join([kind.__qualname__.encode(), *self._inside(value, depth)]))

    def _inside(self, value: Any, depth: int) -> Iterable[bytes]:
        if isinstance(value, dict):
            return self._entries([part for entry in value.items() for part in entry], depth)
        if isinstance(value, set | frozenset):
            return sorted(self._entries([*value], depth))
        if isinstance(value, _LISTS):
            return self._entries([*value], depth)
        if isinstance(value, functools.partial):
            return self._entries([value.func, value.args, value.keywords], depth)
        if isinstance(value, MethodType):
            return self._entries([value.__func__, value.__self__], depth)
        if isinstance(value, FunctionType):
            own = [value.__qualname__, *(value.__defaults__ or ()), *closed_over(value).values()]
            return self._entries(own, depth)
        if isinstance(value, type | ModuleType | nn.Module):
            return []
        held = sorted(held_by(value).items())
        return self._entries([part for entry in held for part in entry], depth)

    def _entries(self, entries: list[Any], depth: int) -> list[bytes]:
        if len(entries) > 1 and _PLAIN.issuperset(map(type, entries)):
            return [_of_plain(entries)]
        stride = -(-len(entries) // _ENTRIES_MAX) or 1
        return [b"%d" % len(entries), *(self.of(one, depth + 1) for one in entries[::stride])]


def _of_plain(entries: list[Any]) -> bytes:
    try:
        return _hash(encode(entries))
    except UserError:  # A text that is none, an integer without end.
        return _hash(repr(entries).encode("utf8", "surrogatepass"))


def _of_tensor(value: Tensor) -> bytes:
    local = as_local(value).detach()
    if not tensor_bytes.is_plain(local):
        return _hash(repr(tuple(value.shape)).encode())
    if local.nbytes > _WHOLE_BYTES_MAX:
        local = local.reshape(-1)[:: -(-local.numel() // _ENTRIES_MAX)]
    head = f"{value.dtype} {tuple(value.shape)}".encode()
    return _hash(head + _hash(tensor_bytes.view_bytes(local.cpu())))


def _of_array(value: "numpy.ndarray[Any, Any]") -> bytes:
    head = f"{value.dtype} {value.shape}".encode()
    if value.nbytes > _WHOLE_BYTES_MAX:
        value = value.reshape(-1)[:: -(-value.size // _ENTRIES_MAX)]
    return _hash(head + _hash(numpy.ascontiguousarray(value).data))


def _hash(data: Any) -> bytes:
    return xxhash.xxh3_64_digest(data)
