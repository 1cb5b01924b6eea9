# SPDX-License-Identifier: Apache-2.0
"""A variable's value as a few bytes: itself if it is small and plain, else its hash.

Equal values of equal types have equal entries in every process. What is no plain value (a module, a
file, a loader) has none. Large containers and tensors are looked at in part: length, shape, and
elements spread over them, so that no capture takes long.
"""

import array
import dataclasses
import inspect
import math
import re
import types
import weakref
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec
import numpy
import torch
import xxhash
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributions import Distribution

from trainmover.asked import are
from trainmover.errors import UserError
from trainmover.state import sets, tensor_bytes
from trainmover.state.encode import as_local, encode
from trainmover.state.kinds.generators import Generator, state_of
from trainmover.state.kinds.modules.attributes import Attributes
from trainmover.state.script import handles
from trainmover.state.script.fold import databases, kinds, names, objects, of_torch, tensors
from trainmover.state.script.fold.addresses import are_addresses
from trainmover.state.script.things.held import CANNOT_BE_READ, held_by
from trainmover.state.script.things.libraries import is_like_array, is_of_library, kept_in
from trainmover.state.script.things.readers import written
from trainmover.state.script.things.things import TOLD, Things, in_words
from trainmover.state.script.things.views import Views
from trainmover.torch_internals.tensors import wrapped_in

ITEMS_MAX = 256
"""Of a container: of a longer one that many are looked at."""
PLAIN_ITEMS_MAX = 2048
"""If all of them are plain."""
LIGHT_MAX = 4 * 1024
"""Entries in all containers in one of so many, if all of them are looked at."""
TENSOR_BYTES_MAX = 16 * 1024
"""Of a tensor: of larger ones so many bytes are hashed."""
WHOLE_BYTES_MAX = 1024 * 1024
"""Of the larger ones together; of what is more a few hundred elements are looked at, spread over
it."""
TOTAL_BYTES_MAX = 1024 * 1024
TOTAL_VALUES_MAX = 2048
TEXT_MAX = 64
DEPTH_MAX = 16
_SAMPLE = 256

PLAIN = kinds.PLAIN
"""Never changed in place: the same object is the same value."""
NATIVE = frozenset({type(None), bool, int, float, str, bytes})
_SECRET = re.compile(r"passw|passphrase|secret|credential|(?:^|_|api|auth)(?:token|key)(?:$|_)")
_SECRETS = re.compile(r"tokens$|keys$")
_NUMBERS = frozenset({type(None), bool, int, float})
_COLLECTIONS = frozenset({list, tuple, set, deque})
_TABLES = frozenset({dict, OrderedDict, defaultdict, Counter})
_PLAIN_HOLDERS = _COLLECTIONS | _TABLES
PARTS_MAX = 64
"""Of what a collection holds, so many objects that may change by other names are looked at."""
_HOLD_LITTLE = _COLLECTIONS | {dict}
_HOLD_PLAINLY = frozenset[type]({list, tuple, dict, OrderedDict, Namespace})
_encoder = msgspec.msgpack.Encoder()
CONTENT_BYTES_MAX, COLLECTION_BYTES_MAX = 2048, 16 * 1024
"""Of a content that goes into each record: batches lie in variables too, as tensors, while a
collection that is so long is the history of a run."""
T = TypeVar("T")
Entry = Any
"""A plain value, or [hash, text for people]; HIDDEN in the place of a text. Of what is small and
holds plain values alone the content is third: see `_content_of`."""
TRIES = 3

NO_VIEWS, NO_THINGS = Views(), Things()
NO_VALUE: Any = object()
"""Of what is no plain value, nor made of such, where not even its type is compared."""
_NOT_READ: Any = object()
"""Of what cannot be looked at."""
HIDDEN = "(hidden)"


def is_secret(path: str, value: object) -> bool:
    """Whether a variable's value must not be shown. `tokens` may be a number of them."""
    words = re.findall(r"\w+", path.rpartition(".")[2].lower())
    if any(map(_SECRET.search, words)):
        return True
    return any(map(_SECRETS.search, words)) and type(value) not in _NUMBERS


def entry_of(
    value: object,
    *,
    secret: bool = False,
    before: Entry = None,
    views: Views = NO_VIEWS,
    things: Things = NO_THINGS,
) -> Entry:
    """What goes into the record. Of what is none its type: see `kinds`.

    views: what a tensor or array may show of tracked state
    things: what is no plain value, but can be compared
    before: entry of what it was, whose text is used again if nothing has changed
    """
    kind = type(value)
    if not secret and (kind is float or (kind in NATIVE and _is_small(value))):
        return value
    folded = _folded(value, views, things)
    if folded is NO_VALUE:
        return of_kind(kind)
    if folded is _NOT_READ:
        return kinds.unread_entry_of(kind) or NO_VALUE
    try:
        digest = xxhash.xxh3_64_digest(_encoder.encode(folded))
    except (OverflowError, UnicodeError):  # A number or a name that msgpack has not.
        digest = xxhash.xxh3_64_digest(repr(folded).encode())
    if type(before) is list and before[0] == digest:
        return before
    if secret:
        return [digest, HIDDEN]
    content = could_be_read(lambda: _content_of(value, views), b"")
    text = _text(value, things)
    return [digest, text, content] if content else [digest, text]


def of_kind(kind: type) -> Entry:
    """Of all objects of a kind that has no values. NO_VALUE: not even that is compared."""
    return kinds.entry_of(kind) or NO_VALUE


def _content_of(value: object, views: Views) -> bytes:
    """The value itself, encoded; b"" for what is large, or may hold what others hold, too: a list
    of numbers is its own, a list of tensors need not be."""
    try:
        data = _encoded(value, views)
    except (UnicodeError, UserError):  # A text that is none, or an array of a kind of its own.
        return b""
    limit = COLLECTION_BYTES_MAX if type(value) in _PLAIN_HOLDERS else CONTENT_BYTES_MAX
    return data if len(data) <= limit else b""


def _encoded(value: object, views: Views) -> bytes:
    if type(value) in (Tensor, numpy.ndarray):
        return encode(value) if _tells_all(value, views) else b""
    if issubclass(type(value), nn.Module):
        kept = Attributes(value, kept_in) if is_of_library(type(value)) else None  # type: ignore
        return encode(kept.state_dict()) if kept else b""
    return encode(value) if _is_of_natives(value) or _is_of_small(value) else b""


def _tells_all(value: Any, views: Views) -> bool:
    """Whether a tensor or array is small, and its memory is its own."""
    if isinstance(value, Tensor):
        tells = value.is_cpu and not value.requires_grad and tensor_bytes.is_plain(value)
    else:
        tells = not value.dtype.hasobject
    return tells and value.nbytes <= CONTENT_BYTES_MAX and views.shown_by(value) is None


def _is_of_natives(value: Any) -> bool:
    kind = type(value)
    if _is_native(kind):
        return True
    if kind not in _PLAIN_HOLDERS or len(value) > PLAIN_ITEMS_MAX:
        return False
    held = [*value, *value.values()] if kind in _TABLES else value
    return all(map(_is_native, {*map(type, held)}))


def _is_of_small(value: Any) -> bool:
    """Whether it holds collections that hold no others: rows, or a list for each name."""
    kind = type(value)
    if kind not in _PLAIN_HOLDERS or len(value) > PLAIN_ITEMS_MAX:
        return False
    parts = [*value.values()] if kind in _TABLES else [*value]
    may_change = sum(type(one) is not tuple and not _is_native(type(one)) for one in parts)
    keys = value if kind in _TABLES else ()
    return may_change <= PARTS_MAX and all(map(_is_of_natives, [[*keys], *parts]))


def _is_native(kind: type) -> bool:
    """Whether its objects never change: numpy's numbers among them."""
    return kind in NATIVE or issubclass(kind, numpy.number | numpy.bool_)


class Holding:
    """What a small container of plain values held, which its entry follows from: as long as it
    holds the very same objects, nothing need be folded and hashed."""

    __slots__ = ("_content", "_kind")

    def __init__(self, kind: type, values: list[object]) -> None:
        self._kind = kind
        self._content = values

    def tells(self, value: Any, kind: type) -> bool:
        """Whether this one, of this kind, holds them: 1 is not True."""
        return kind is self._kind and are(_values_held(value, kind), self._content)


class Itself:
    """An object of which no more counts than which one it is. It is not kept alive for that."""

    __slots__ = ("_kind", "_reference")

    def __init__(self, value: Any) -> None:
        self._kind = type(value)
        self._reference = weakref.ref(value)

    def tells(self, value: Any, kind: type) -> bool:
        """Whether it is this one."""
        return self._reference() is value and kind is self._kind


def standing_for(value: Any, things: Things) -> Holding | Itself | None:
    """What tells at the next look that the entry is right still, as it does mostly; None: nothing,
    or to ask takes as long as to fold."""
    if things.is_itself(value):
        with suppress(TypeError):  # One with slots may not be referred to.
            return Itself(value)
    kind = type(value)
    if kind not in _HOLD_PLAINLY:
        return None
    is_named = kind in _TABLES or kind is Namespace
    held = vars(value) if kind is Namespace else value
    if len(held) > ITEMS_MAX or (kind is Namespace and id(value) in things.untracked.kept):
        return None
    values = _values_held(value, kind)
    plain = NATIVE.issuperset(map(type, values))
    return Holding(kind, values) if plain and (not is_named or all(map(_is_text, held))) else None


def _is_text(value: object) -> bool:
    return type(value) is str


def _values_held(value: Any, kind: type) -> list[object]:
    """With their names, where they have some."""
    if kind in (list, tuple):
        return [*value]
    held = vars(value) if kind is Namespace else value
    return [*held, *held.values()]


def generator_entry(generator: Generator) -> Entry:
    """Of a generator of random numbers: what it will draw from."""
    digest = xxhash.xxh3_64_digest(encode(state_of(generator)))
    return [digest, f"a {type(generator).__name__}"]


def handle_entry(name: str) -> Entry:
    """Of whatever is known by that name."""
    return [xxhash.xxh3_64_digest(_encoder.encode(handles.fold_of(name))), name]


def known_as(entry: Entry) -> Any:
    """What entries of one handle have in common; None: it is the entry of none."""
    return entry[0] if type(entry) is list else None


def _folded(value: object, views: Views, things: Things) -> Any:
    """_NOT_READ for what cannot be looked at: its own code raises as it is asked, or other threads
    change it meanwhile. To read a variable never harms a script."""
    for _ in range(TRIES):
        try:
            return Fold(views, things).of(value)
        except CANNOT_BE_READ:
            continue
    return _NOT_READ


def could_be_read(read: Callable[[], T], otherwise: T) -> T:
    """What `read` gives, where nothing stands in the way; see `_folded`."""
    for _ in range(TRIES):
        with suppress(*CANNOT_BE_READ):
            return read()
    return otherwise


def same(one: Entry, other: Entry) -> bool:
    """Bit for bit, and of one type: 1 is not 1.0, and a NaN is itself."""
    if isinstance(one, list) and isinstance(other, list):
        return bool(one[0] == other[0])
    return _encoder.encode(one) == _encoder.encode(other)


def shown(entry: Entry) -> str:
    """For people, shortened."""
    if isinstance(entry, list):
        return str(entry[1])
    return _shortened(repr(entry))


def _is_small(value: Any) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    if isinstance(value, str):
        return len(value) <= TEXT_MAX and value.isascii()
    return not isinstance(value, bytes) or len(value) <= TEXT_MAX


def _shortened(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 3]}..."


class Fold:
    """Turns a value into what msgpack has. It looks at so many bytes and at so many containers."""

    def __init__(self, views: Views = NO_VIEWS, things: Things = NO_THINGS) -> None:
        self._views = views
        self._things = things
        self._left = TOTAL_BYTES_MAX
        self._whole_left = WHOLE_BYTES_MAX
        self._values_left = TOTAL_VALUES_MAX

    def of(self, value: Any, depth: int = 0) -> Any:
        """NO_VALUE for what is no plain value, nor made of such."""
        kind = type(value)
        if kind in NATIVE:
            return value
        self._values_left -= 1
        if depth >= DEPTH_MAX or self._values_left < 0:
            return kind.__name__
        fold = _FOLDS.get(kind)
        if fold is not None:
            return fold(self, value, depth)
        things = self._things
        if kind not in things.kinds:
            if (folded := self._by_class(value, kind, depth)) is not None:
                return folded
            things.kinds.add(kind)
        thing = things.folded(value, lambda one: self._inside(one, depth))
        return self._object(value, kind, depth) if thing is None else thing

    def _by_class(self, value: Any, kind: type, depth: int) -> Any:
        """What is told by what it is derived from; None for every object of a kind that is not."""
        if handles.is_one(kind):
            return handles.folded(value) or NO_VALUE
        if issubclass(kind, Tensor):
            return self._tensor(value)
        if issubclass(kind, numpy.ndarray | numpy.generic):
            return self._array(value)
        if is_like_array(kind):
            return self._table(value)
        if issubclass(kind, Distribution):
            return [kind.__name__, *self._mapping(objects.parameters_of(value), depth)]
        if issubclass(kind, Enum):
            named = held_by(value)
            number = named.get("_value_")  # A text may be a path, or the time.
            told = [number] if type(number) in (bool, int, float) else []
            return [kind.__name__, named.get("_name_"), *told]
        if issubclass(kind, (*TOLD, DeviceMesh)):
            return [kind.__name__, repr(value)]
        for base in (int, float, str, bytes):
            if issubclass(kind, base):
                return [kind.__name__, base.__repr__(value)]
        if not issubclass(kind, type) and dataclasses.is_dataclass(kind):
            fields = _fields_of(value)
            beside = self._things.beside(value, fields, lambda one: self._inside(one, depth))
            return [*self._mapping(fields, depth), *beside]
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return self._sequence(value, depth)
        return None

    def _object(self, value: Any, kind: Any, depth: int) -> Any:
        """Of a library's class."""
        if of_torch.is_member(kind):
            return [kinds.name_of(kind), value.name]
        if of_torch.is_one(kind):
            return [kinds.name_of(kind), *self._mapping(of_torch.settings_of(value), depth)]
        if databases.is_one(kind):
            return databases.content_of(value) or NO_VALUE
        if objects.is_image(kind):
            return [kinds.name_of(kind), *self._image(value)]
        if objects.has_attributes_of_numbers(kind):
            return [kinds.name_of(kind), *self._mapping(objects.attributes_of(value), depth)]
        parts = objects.parts_of(value) if objects.is_value(kind) else []
        return (
            [kinds.name_of(kind), *(self._inside(one, depth) for one in parts)]
            if parts
            else NO_VALUE
        )

    def _image(self, value: Any) -> list[Any]:
        """Its size; the pixels of a small one that is in memory: they are copied for it."""
        held = held_by(value)
        size = held.get("_size")
        is_small = type(size) is tuple and math.prod(size) <= TENSOR_BYTES_MAX // 4
        is_loaded = held.get("_im", held.get("im")) is not None
        return [size, self._array(numpy.asarray(value)) if is_small and is_loaded else None]

    def _sequence(self, value: Any, depth: int) -> list[Any]:
        length = len(value)
        name = type(value).__name__
        if ITEMS_MAX < length <= PLAIN_ITEMS_MAX and set(map(type, value)) <= NATIVE:
            return [name, length, *value]
        whole = length <= ITEMS_MAX or (length <= PLAIN_ITEMS_MAX and _is_light(value))
        items = value if whole else _spread(value, length)
        if set(map(type, items)) <= NATIVE:
            return [name, length, *items]
        return [name, length, *(self._inside(item, depth) for item in items)]

    def _mapping(self, value: Any, depth: int) -> list[Any]:
        length = len(value)
        few = length <= PLAIN_ITEMS_MAX
        if few and {*map(type, value), *map(type, value.values())} <= NATIVE:
            keys = () if are_addresses(value) else value
            return [type(value).__name__, length, *keys, *value.values()]
        whole = length <= ITEMS_MAX or (few and _is_light(value.values()))
        entries: Iterable[Any] = list(value.items()) if whole else ()
        if not whole:
            ends = islice(value.items(), ITEMS_MAX // 2), islice(reversed(value.items()), 128)
            entries = [entry for end in ends for entry in end]
        folded: list[Any] = [type(value).__name__, length]
        by_address = are_addresses(value)
        for key, entry in entries:
            folded += ("" if by_address else self._inside(key, depth), self._inside(entry, depth))
        return folded

    def _namespace(self, value: Any, depth: int) -> list[Any]:
        """Without what of it goes with the rank."""
        held, kept = vars(value), self._things.untracked.kept.get(id(value))
        if kept:
            held = {name: one for name, one in held.items() if name not in kept}
        return self._mapping(held, depth)

    def _unordered(self, value: Any, depth: int) -> list[Any]:
        """In its order, where that is one that another process can have."""
        name, length = type(value).__name__, len(value)
        items = [*islice(value, ITEMS_MAX if length > 16 * ITEMS_MAX else length)]
        if sets.is_ordered(items):
            return [name, length, *items]
        if length > len(items):
            return [name, length]
        return [name, *sorted(repr(self._inside(item, depth)) for item in value)]

    def _inside(self, value: Any, depth: int) -> Any:
        try:
            folded = self.of(value, depth + 1)
        except CANNOT_BE_READ:  # It hides itself alone, not what it lies in.
            unread = ["not read", kinds.name_of(type(value))]
            folded = could_be_read(partial(self.of, value, depth + 1), unread)
        return kinds.name_of(type(value)) if folded is NO_VALUE else folded

    def _tensor(self, value: Tensor) -> Any:
        if wrapped := wrapped_in(value):
            return [kinds.name_of(type(value)), *map(self._tensor, wrapped)]
        local = as_local(value)
        if not tensor_bytes.is_plain(local):
            parts = [*tensors.parts_of(local)]
            known = [self._tensor(one) if isinstance(one, Tensor) else one for one in parts]
            is_known = bool(parts) and all(one is not NO_VALUE for one in known)
            return [[*map(str, _shape_of(local))], *known] if is_known else NO_VALUE
        head: list[Any] = [tensor_bytes.dtype_name(local.dtype), list(local.shape)]
        if value.is_leaf and value.requires_grad:
            head.append("is trained")
        if (shown := self._views.shown_by(local)) is not None:
            return [*head, *shown]
        if local.nbytes > TENSOR_BYTES_MAX:
            if local.is_cpu and self._may_hash(local.nbytes):
                head.append(xxhash.xxh3_64_digest(tensor_bytes.view_bytes(local)))
                return head
            local = _sampled(local)
        if not self._may_read(local.nbytes):
            return head
        if value.is_leaf and value.requires_grad and value.grad is not None:
            head.append(self._tensor(value.grad))
        return [*head, tensor_bytes.view_bytes(local).tobytes()]

    def _array(self, value: "numpy.ndarray[Any, Any] | numpy.generic") -> Any:
        if isinstance(value, numpy.ma.MaskedArray):
            return ["masked", *map(self._array, tensors.parts_of_masked(value))]
        head: list[Any] = [value.dtype.str, list(value.shape)]
        if value.dtype.hasobject:
            return [*head, *self._sequence(value.reshape(-1), 0)]
        if isinstance(value, numpy.ndarray) and (shown := self._views.shown_by(value)) is not None:
            return [*head, *shown]
        if value.nbytes > TENSOR_BYTES_MAX:
            if self._may_hash(value.nbytes):
                flat = numpy.ascontiguousarray(value).reshape(-1).view(numpy.uint8)
                return [*head, xxhash.xxh3_64_digest(flat.data)]
            value = value.reshape(-1)[:: -(-value.size // _SAMPLE)]
        return [*head, value.tobytes()] if self._may_read(value.nbytes) else head

    def _table(self, value: Any) -> list[Any]:
        """Of a longer one the rows at both ends."""
        rows, width = value.shape[0], math.prod(value.shape[1:])
        end = max(1, PLAIN_ITEMS_MAX // 2 // max(1, width))
        parts = [value] if rows <= 2 * end else [value[:end], value[-end:]]
        arrays = [self._array(numpy.asarray(part)) for part in parts]
        return [type(value).__name__, rows, *arrays]

    def _may_hash(self, nbytes: int) -> bool:
        if nbytes > self._whole_left:
            return False
        self._whole_left -= nbytes
        return True

    def _may_read(self, nbytes: int) -> bool:
        self._left -= nbytes
        return self._left >= 0


def _shape_of(value: Tensor) -> Sequence[int]:
    return (value.dim(), value.size(0)) if value.is_nested else value.shape


def _fields_of(value: Any) -> dict[str, Any]:
    """Of a dataclass, without asking its own code."""
    held = held_by(value)
    found = {}
    for one in dataclasses.fields(value):
        slot = inspect.getattr_static(type(value), one.name, None)
        if one.name in held:
            found[one.name] = held[one.name]
        elif isinstance(slot, types.MemberDescriptorType):
            found[one.name] = slot.__get__(value) if _is_set(slot, value) else None
    return found


def _is_set(slot: types.MemberDescriptorType, value: object) -> bool:
    try:
        slot.__get__(value)
    except AttributeError:
        return False
    return True


def _is_light(entries: Iterable[Any]) -> bool:
    """Whether all of them are plain, or containers that hold little all together: tensors take
    longer."""
    kinds = {*map(type, entries)}
    if not kinds <= NATIVE | _HOLD_LITTLE:
        return False
    held = [one for one in entries if type(one) in _HOLD_LITTLE]
    if sum(map(len, held)) > LIGHT_MAX:
        return False
    return all(NATIVE.issuperset(map(type, _values_in(one))) for one in held)


def _values_in(container: Any) -> Iterable[Any]:
    return container.values() if type(container) is dict else container


def _spread(value: Any, length: int) -> list[Any]:
    """The ends of a long sequence, and some items between."""
    end = ITEMS_MAX // 4
    between = range(end, length - end, max(1, length // (2 * end)))
    places = [*range(end), *between, *range(length - end, length)]
    if isinstance(value, deque):  # To reach its middle takes time.
        places = [*range(end), *range(length - end, length)]
    return [value[place] for place in places]


def _sampled(tensor: Tensor) -> Tensor:
    flat = tensor.reshape(-1) if tensor.is_contiguous() else tensor[0].reshape(-1)
    return flat[:: -(-flat.numel() // _SAMPLE)]


def _text(value: Any, things: Things) -> str:
    """What a hashed value is, for people."""
    kind = type(value)
    if kind in PLAIN or kind is range:
        return _shortened(repr(value))
    if kind is types.CodeType:
        return f"the code of {value.co_name}"
    if handles.is_one(kind):
        return handles.in_words(value)
    if issubclass(kind, Tensor):
        shape = "x".join(map(str, _shape_of(value))) or "scalar"
        local = as_local(value)
        is_plain = local.is_cpu and tensor_bytes.is_plain(local) and not wrapped_in(value)
        if is_plain and local.numel() == 1:
            return f"tensor({local.item()})"
        return f"a tensor of shape {shape}"
    if issubclass(kind, numpy.generic):
        return _shortened(repr(value.item()))
    if issubclass(kind, numpy.ndarray):
        return "an array of shape " + "x".join(map(str, value.shape))
    if is_like_array(kind):
        return f"a {kind.__name__} of shape " + "x".join(map(str, value.shape))
    if kind in (list, tuple, deque):
        last = value[-1] if value else None
        ending = f" ending in {last!r}" if type(last) in (int, float) else ""
        return f"a {kind.__name__} of {len(value)}{ending}"
    if kind in (dict, set, frozenset):
        return f"a {kind.__name__} of {len(value)}"
    if issubclass(kind, names.KINDS):
        return _shortened(names.in_words(value))
    return in_words(value, things.untracked.own_name(value))


def _views_of(value: "dict[Any, Any]") -> tuple[Any, ...]:
    return value.keys(), value.values(), value.items()


_FOLDS: dict[type, Callable[[Fold, Any, int], Any]] = {
    list: Fold._sequence,
    tuple: Fold._sequence,
    deque: Fold._sequence,
    torch.Size: Fold._sequence,
    array.array: Fold._sequence,
    slice: lambda fold, value, depth: ["slice", repr(value)],
    range: lambda fold, value, depth: ["range", value.start, value.stop, value.step],
    dict: Fold._mapping,
    OrderedDict: Fold._mapping,
    Counter: Fold._mapping,
    defaultdict: lambda fold, value, depth: [
        fold._inside(value.default_factory, depth),
        *fold._mapping(value, depth),
    ],
    types.SimpleNamespace: Fold._namespace,
    Namespace: Fold._namespace,
    set: Fold._unordered,
    frozenset: Fold._unordered,
    complex: lambda fold, value, depth: ["complex", value.real, value.imag],
    bytearray: lambda fold, value, depth: ["bytearray", fold._array(numpy.frombuffer(value, "u1"))],
    **dict.fromkeys(
        (*map(type, _views_of({})), *map(type, _views_of(OrderedDict()))),
        lambda fold, value, depth: [type(value).__name__, fold._sequence([*value], depth)],
    ),
    types.CodeType: lambda fold, value, depth: [value.co_name, written(value)],
    **dict.fromkeys(
        (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme),
        lambda fold, value, depth: [type(value).__name__, str(value)],
    ),
}
