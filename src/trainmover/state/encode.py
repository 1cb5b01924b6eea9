# SPDX-License-Identifier: Apache-2.0
"""Nested Python values as bytes, without pickle: what a state_dict may hold, and nothing else.

The carrier is msgpack. What msgpack has (None, bool, 64-bit int, float, str, bytes, list, dict with
str keys) is written natively; every other type is a msgpack extension whose body is again such a
value, so a reader can only ever build the types in the table below. Values come back bit exact and
in their own type: a tuple stays a tuple, -0.0 stays -0.0, a dict keeps its order.

`split` is `encode` for large state: tensors stay outside as the live objects, and the bytes hold a
`Hole` in the place of each. `join` fills the holes again.
"""

import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy
import torch
from torch import Tensor

from trainmover.asked import is_in_c
from trainmover.errors import ProtocolError, UserError
from trainmover.state import sets, tensor_bytes
from trainmover.torch_internals.modules import VERSIONS, set_versions, versions_of
from trainmover.torch_internals.tensors import arrived, coordinates_of, values_of

# Extension codes are part of the wire format: never renumber, only append.
_INT, _COMPLEX, _TUPLE, _SET, _FROZENSET, _DICT, _ORDERED, _DEFAULT, _COUNTER = range(9)
_TENSOR, _SIZE, _DTYPE, _ARRAY, _SCALAR, _HOLE, _DEVICE, _BYTEARRAY, _SPARSE = range(9, 18)
_DEQUE = 18

_DEFAULT_FACTORIES: dict[str, Callable[[], Any] | None] = {
    "int": int,
    "float": float,
    "list": list,
    "dict": dict,
    "set": set,
    "": None,
}
_ARRAY_DTYPE = re.compile(r"[<>|=]([biufcmMSU]\d*(\[\w+\])?|\?)")

_AS_THEY_ARE = frozenset({type(None), bool, float, str, bytes})
_ONLY_STR = frozenset({str})
_PLAIN = _AS_THEY_ARE | {int}
_NESTED = frozenset({dict, list})
_DEPTH_MAX = 16
_LEAST, _MOST = -(2**63), 2**64 - 1  # Of msgpack's integers.
_ADDRESSES = range(1 << 45, 1 << 48, 16)
"""Where objects and memory of tensors lie in a process on 64-bit Linux: what `id` gives."""

Path = tuple[Any, object, str] | None
"""Where in a value: path to what it is in, key or number, and which. Written out for people."""

_encoder = msgspec.msgpack.Encoder()


@dataclass(frozen=True)
class Hole:
    """The place of a tensor that travels beside the bytes.

    path     where it is inside the value: "state[0].exp_avg"
    shape    of the tensor as it travels: of a sharded tensor the local part
    sharded  whether the value held a DTensor there
    """

    path: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    sharded: bool

    @property
    def fit(self) -> tuple[tuple[int, ...], torch.dtype]:
        return self.shape, self.dtype


def encode(value: object) -> bytes:
    """Bytes from which `decode` makes an equal value of equal types.

    A tensor or array of any strides becomes a contiguous one on the CPU. Raises UserError for a
    type that is not in the table, naming its path inside the value ("scheduler.lambdas[0]").
    """
    data = plain(value)
    return _run(_Writer(tensors=None, canonical=False), value) if data is None else data


def split(value: object, *, canonical: bool = False) -> tuple[bytes, list[Tensor]]:
    """Structure of a value, and its tensors: the live objects; see `as_local` for their bytes.

    canonical  entries of dicts are sorted, so that insertion order does not show
    """
    tensors: list[Tensor] = []
    return _run(_Writer(tensors=tensors, canonical=canonical), value), tensors


def decode(data: bytes | memoryview) -> Any:
    """The value that `encode` was given. Raises ProtocolError on any other bytes."""
    return _read(data, _no_holes)


def join(data: bytes | memoryview, tensors: Sequence[Tensor]) -> Any:
    """The value that `split` was given, around `tensors` (not copied). Raises ProtocolError."""
    remaining = iter(tensors)

    def next_tensor(hole: Hole) -> Tensor:
        tensor = next(remaining, None)
        if tensor is None:
            raise ValueError(f"no tensor left for {hole.path}")
        return tensor

    return _read(data, next_tensor)


def holes(data: bytes | memoryview) -> list[Hole]:
    """What tensors `split` left out of these bytes, in order. Raises ProtocolError."""
    found: list[Hole] = []

    def note(hole: Hole) -> None:
        found.append(hole)

    _read(data, note)
    return found


def as_local(tensor: Tensor) -> Tensor:
    """The tensor whose bytes this process holds: of a DTensor its local part, detached."""
    local = tensor.detach()
    if hasattr(local, "to_local"):
        local = local.to_local()
    return local if type(local) is Tensor else arrived(local)


# ---- writing


def _is_native(value: object, depth: int = 0) -> bool:
    """Whether msgpack has it as it is, whatever the size of its integers; True means the very bytes
    that a `_Writer` would make. Most states are so, and are written at every step."""
    kind = type(value)
    if kind is dict:
        if not _ONLY_STR.issuperset(map(type, value)):  # type: ignore[call-overload]
            return False
        entries: Collection[object] = value.values()  # type: ignore[attr-defined]
    elif kind is list:
        entries = value  # type: ignore[assignment]
    else:
        return kind in _PLAIN
    kinds = {*map(type, entries)} - _PLAIN
    if not kinds <= _NESTED or depth == _DEPTH_MAX:
        return False
    for one in entries if kinds else ():
        kind = type(one)
        if kind in _PLAIN or (kind is list and _PLAIN.issuperset(map(type, one))):  # type: ignore[call-overload]
            continue
        if kind is dict and _PLAIN.issuperset(map(type, one.values())):  # type: ignore[attr-defined]
            if not _ONLY_STR.issuperset(map(type, one)):  # type: ignore[call-overload]
                return False
            continue
        if not _is_native(one, depth + 1):
            return False
    return True


def packed_in_python(tuple_code: int, value: object) -> bytes | None:
    """What the extension's `packed` gives, but for tuples. None: a `_Writer` has to write it."""
    if not _is_native(value):
        return None
    try:
        return _encoder.encode(value)
    except OverflowError:  # An integer that msgpack has not.
        return None


if TYPE_CHECKING or is_in_c("packed"):
    from trainmover._native import packed
else:
    packed = packed_in_python

plain = partial(packed, _TUPLE)
"""What `encode` gives, of values of msgpack's types and tuples; None: of others."""


def _run(writer: "_Writer", value: object) -> bytes:
    try:
        return _encoder.encode(writer.native(value, None))
    except RecursionError:
        raise UserError(
            "A tracked state contains itself, or is nested too deeply to be sent.",
            means="This rank could not be rebuilt on another machine.",
            do="Return plain data from state_dict().",
        ) from None


class _Writer:
    """Turns a value into one that msgpack has: native types, and Ext for the rest."""

    def __init__(self, *, tensors: list[Tensor] | None, canonical: bool) -> None:
        self.tensors = tensors
        self.canonical = canonical

    def native(self, value: object, path: Path) -> object:
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value
        write = _WRITERS.get(kind)
        if write is not None:
            return write(self, value, path)
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._numpy(value, path)
        raise _unsupported(value, path)

    def ext(self, code: int, body: object) -> msgspec.msgpack.Ext:
        return msgspec.msgpack.Ext(code, _encoder.encode(body))

    def items(self, values: Sequence[Any], path: Path) -> list[object]:
        return [
            value
            if (kind := type(value)) in _AS_THEY_ARE or (kind is int and _LEAST <= value <= _MOST)
            else self.native(value, (path, index, "item"))
            for index, value in enumerate(values)
        ]

    def pairs(self, mapping: Mapping[Any, object], path: Path) -> list[list[object]]:
        """Key and value of each entry; keys may be anything hashable that can be encoded, and that
        means the same in another process."""
        keys = _Writer(tensors=None, canonical=self.canonical)
        return [
            [keys.known(key, (path, "", "key")), self.native(value, (path, key, "entry"))]
            for key, value in mapping.items()
        ]

    def known(self, key: object, path: Path) -> object:
        """By which something is found again, as an entry of a dict is."""
        parts = key if type(key) is tuple else (key,)
        if any(type(one) is int and one in _ADDRESSES for one in parts):
            raise _of_one_process(path)
        return self.native(key, path)

    def integer(self, value: int, path: Path) -> object:
        if _LEAST <= value <= _MOST:
            return value
        return self.ext(_INT, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))

    def mapping(self, value: dict[Any, Any], path: Path) -> object:
        entries: Mapping[Any, Any] = self._ordered(value) if self.canonical else value
        if not _ONLY_STR.issuperset(map(type, entries)):
            return self.ext(_DICT, self.pairs(entries, path))
        return {
            key: entry
            if (kind := type(entry)) in _AS_THEY_ARE or (kind is int and _LEAST <= entry <= _MOST)
            else self.native(entry, (path, key, "entry"))
            for key, entry in entries.items()
        }

    def ordered(self, value: "OrderedDict[Any, object]", path: Path) -> object:
        pairs = self.pairs(self._ordered(value), path)
        versions = versions_of(value)
        return self.ext(_ORDERED, [pairs, self.native(versions, (path, VERSIONS, "entry"))])

    def default(self, value: "defaultdict[Any, object]", path: Path) -> object:
        factory = value.default_factory
        for name, known in _DEFAULT_FACTORIES.items():
            if factory is known:
                return self.ext(_DEFAULT, [name, self.pairs(self._ordered(value), path)])
        raise _unsupported(factory, (path, "default_factory", "entry"))

    def unordered(self, value: "set[object] | frozenset[object]", path: Path) -> object:
        """In its order. Canonical: sorted, so that equal sets have equal bytes in every process."""
        code = _SET if isinstance(value, set) else _FROZENSET
        content = sets.content_of(value)
        # Tensors in a set stay inside the bytes: sorting would change the order of holes.
        inner = _Writer(tensors=None, canonical=self.canonical)
        entries = [inner.known(item, (path, "", "member")) for item in content.entries]
        if not self.canonical:
            return self.ext(code, [entries, content.table])
        return self.ext(code, [[*map(msgspec.Raw, sorted(map(_encoder.encode, entries)))], ()])

    def _ordered(self, value: Mapping[Any, object]) -> Mapping[Any, object]:
        if not self.canonical:
            return value
        return dict(sorted(value.items(), key=lambda entry: encode(entry[0])))

    def _tensor(self, value: Tensor, path: Path) -> object:
        sharded = hasattr(value, "to_local")
        local = as_local(value)
        if local.layout == torch.sparse_coo and not sharded:
            return self._sparse(local.detach(), path)
        if not tensor_bytes.is_plain(local) or (sharded and self.tensors is None):
            raise _unsupported(value, path)
        shape, dtype = list(local.shape), tensor_bytes.dtype_name(local.dtype)
        if self.tensors is None:
            if not type(value).__module__.startswith("torch"):  # It would come back a plain one.
                raise _unsupported(value, path)
            return self.ext(_TENSOR, [dtype, shape, tensor_bytes.view_bytes(local)])
        self.tensors.append(value)
        return self.ext(_HOLE, [_written(path), shape, dtype, sharded])

    def _sparse(self, value: Tensor, path: Path) -> object:
        """Its parts, as they lie there; they are never holes."""
        parts = [coordinates_of(value), values_of(value)]
        if not all(map(tensor_bytes.is_plain, parts)):
            raise _unsupported(value, path)
        inside = _Writer(tensors=None, canonical=self.canonical)
        folded = [inside._tensor(part, path) for part in parts]
        return self.ext(_SPARSE, [list(value.shape), *folded, value.is_coalesced()])

    def _numpy(self, value: "numpy.ndarray[Any, Any] | numpy.generic", path: Path) -> object:
        if not _ARRAY_DTYPE.fullmatch(value.dtype.str):
            raise _unsupported(value, path)
        if isinstance(value, numpy.generic):
            return self.ext(_SCALAR, [value.dtype.str, value.tobytes()])
        if type(value) is not numpy.ndarray:
            raise _unsupported(value, path)
        return self.ext(_ARRAY, [value.dtype.str, list(value.shape), value.tobytes()])


_WRITERS: dict[type, Callable[[_Writer, Any, Path], object]] = {
    int: _Writer.integer,
    list: _Writer.items,
    dict: _Writer.mapping,
    tuple: lambda w, v, path: w.ext(_TUPLE, w.items(v, path)),
    deque: lambda w, v, path: w.ext(_DEQUE, [v.maxlen, w.items(v, path)]),
    complex: lambda w, v, path: w.ext(_COMPLEX, [v.real, v.imag]),
    bytearray: lambda w, v, path: w.ext(_BYTEARRAY, bytes(v)),
    set: _Writer.unordered,
    frozenset: _Writer.unordered,
    OrderedDict: _Writer.ordered,
    defaultdict: _Writer.default,
    Counter: lambda w, v, path: w.ext(_COUNTER, w.pairs(w._ordered(v), path)),
    torch.Size: lambda w, v, path: w.ext(_SIZE, list(v)),
    torch.dtype: lambda w, v, path: w.ext(_DTYPE, tensor_bytes.dtype_name(v)),
    torch.device: lambda w, v, path: w.ext(_DEVICE, str(v)),
}


def _written(path: Path) -> str:
    """As people write it: "state[0].exp_avg"."""
    if path is None:
        return ""
    above, key, kind = path
    before = _written(above)
    if kind == "item":
        return f"{before}[{key}]"
    if kind == "key":
        return f"{before} key"
    if kind == "member":
        return f"{before}{{}}"
    if not isinstance(key, str):
        return f"{before}[{key!r}]"
    return f"{before}.{key}" if before else key


def _unsupported(value: object, path: Path) -> UserError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return UserError(
        f"Tracked state holds a {kind} at `{_written(path) or 'its top'}`, which cannot be sent.",
        means="This rank could not be rebuilt on another machine.",
        do="Leave it out of state_dict(), or turn it into numbers, strings, tensors, lists, dicts.",
    )


def _of_one_process(path: Path) -> UserError:
    return UserError(
        f"Tracked state holds an address, as id() gives, at `{_written(path)}`, which means "
        "nothing in another process.",
        means="What is found by it here would not be found on another machine.",
        do="Take a name or a number in its place.",
    )


# ---- reading


def _read(data: bytes | memoryview, fill: Callable[[Hole], object]) -> Any:
    def ext_hook(code: int, body: memoryview) -> object:
        if code == _HOLE:
            return fill(_hole(read(body)))
        return _READERS[code](read(body))

    decoder = msgspec.msgpack.Decoder(ext_hook=ext_hook)
    read: Callable[[memoryview | bytes], Any] = decoder.decode
    try:
        return read(data)
    except ProtocolError:
        raise
    except (
        *(msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError),
        *(OverflowError, RecursionError, RuntimeError, MemoryError),
    ) as error:
        raise ProtocolError(
            f"Bytes that should hold a state do not: {type(error).__name__}: {error}",
            means="Nothing was taken from them.",
            do="All processes of a job must run the same version of trainmover.",
        ) from error


def _no_holes(hole: Hole) -> object:
    raise ValueError(f"the tensor {hole.path} is not in these bytes")


def _hole(body: Any) -> Hole:
    path, shape, dtype, sharded = body
    if type(path) is not str or type(sharded) is not bool or not _is_shape(shape):
        raise ValueError("malformed hole")
    return Hole(path, tuple(shape), tensor_bytes.DTYPES[dtype], sharded)


def _is_shape(shape: Any) -> bool:
    return type(shape) is list and all(type(n) is int and 0 <= n < 2**63 for n in shape)


def _expect(kind: type, body: Any) -> Any:
    if type(body) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {type(body).__name__}")
    return body


def _read_ordered(body: Any) -> "OrderedDict[Any, Any]":
    pairs, metadata = body
    value = OrderedDict(_expect(list, pairs))
    if metadata is not None:
        set_versions(value, metadata)
    return value


def _read_set(kind: Any, body: Any) -> "sets.AnySet":
    entries, table = map(partial(_expect, list), body)
    made: sets.AnySet = sets.made(kind, sets.Content(entries, tuple(table)))
    return made


def _read_tensor(body: Any) -> Tensor:
    dtype, shape, data = body
    if not _is_shape(shape):
        raise ValueError("malformed shape")
    view = memoryview(_expect(bytes, data))
    return tensor_bytes.from_bytes(view, tensor_bytes.DTYPES[dtype], tuple(shape))


def _read_sparse(body: Any) -> Tensor:
    shape, indices, values, coalesced = body
    if not _is_shape(shape):
        raise ValueError("malformed shape")
    return torch.sparse_coo_tensor(
        _expect(Tensor, indices),
        _expect(Tensor, values),
        shape,
        check_invariants=True,
        is_coalesced=_expect(bool, coalesced),
    )


def _array_dtype(name: Any) -> "numpy.dtype[Any]":
    if not _ARRAY_DTYPE.fullmatch(_expect(str, name)):
        raise ValueError(f"unknown array type {name!r}")
    dtype: numpy.dtype[Any] = numpy.dtype(name)
    return dtype


def _read_array(body: Any) -> "numpy.ndarray[Any, Any]":
    dtype, shape, data = body
    if not _is_shape(shape):
        raise ValueError("malformed shape")
    array: numpy.ndarray[Any, Any] = numpy.ndarray(shape, _array_dtype(dtype), data)
    if array.nbytes != len(data):
        raise ValueError("array of another size")
    return array.copy()


def _read_scalar(body: Any) -> Any:
    dtype, data = body
    return _array_dtype(dtype).type(numpy.frombuffer(data, _array_dtype(dtype), count=1)[0])


_READERS: dict[int, Callable[[Any], object]] = {
    _INT: lambda body: int.from_bytes(_expect(bytes, body), "little", signed=True),
    _COMPLEX: lambda body: complex(_expect(float, body[0]), _expect(float, body[1])),
    _TUPLE: lambda body: tuple(_expect(list, body)),
    _DEQUE: lambda body: deque(_expect(list, body[1]), body[0]),
    _SET: lambda body: _read_set(set, body),
    _FROZENSET: lambda body: _read_set(frozenset, body),
    _DICT: lambda body: dict(_expect(list, body)),
    _ORDERED: _read_ordered,
    _DEFAULT: lambda body: defaultdict(_DEFAULT_FACTORIES[body[0]], _expect(list, body[1])),
    _COUNTER: lambda body: Counter(dict(_expect(list, body))),
    _TENSOR: _read_tensor,
    _SPARSE: _read_sparse,
    _SIZE: lambda body: torch.Size(_expect(list, body)),
    _DTYPE: lambda body: tensor_bytes.DTYPES[body],
    _ARRAY: _read_array,
    _SCALAR: _read_scalar,
    _DEVICE: lambda body: torch.device(_expect(str, body)),
    _BYTEARRAY: lambda body: bytearray(_expect(bytes, body)),
}
