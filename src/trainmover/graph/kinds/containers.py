# SPDX-License-Identifier: Apache-2.0
"""Containers and Python objects: items, attributes and slots."""

import collections
import enum
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trainmover.graph.kinds.kind import HOLE, MISSING, Body, Kind, Refs, item, same_objects
from trainmover.graph.layout import (
    CONTAINERS,
    attributes_of,
    slot_values,
    slots_of,
    solid_base,
)
from trainmover.graph.nodes import Path
from trainmover.state import sets
from trainmover.torch_internals.objects import NOT_CARRIED

if TYPE_CHECKING:
    from trainmover.graph.restore import Restore
    from trainmover.graph.walk import Walk

_NAMED = {one.__name__: one for one in CONTAINERS}


class Instance(Kind):
    """A Python object: its items, what its container keeps beside them, `__dict__` and slots."""

    name = "object"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        cls: Any = type(obj)
        base = types.SimpleNamespace if cls is types.SimpleNamespace else solid_base(cls)
        items, extra = _items(obj, base, walk, path)
        attributes = attributes_of(obj) or {}
        if made := NOT_CARRIED.get(cls):
            attributes = {name: one for name, one in attributes.items() if name not in made}
        return (
            cls.__name__ if cls in CONTAINERS else walk.class_ref(cls, path),
            items,
            extra,
            walk.named_refs(attributes, path),
            walk.named_refs(slot_values(obj), path) if slots_of(cls) else {},
        )

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        kind, items, extra, attributes, slots = body
        cls = _NAMED[kind] if isinstance(kind, str) else restore.cls(kind, live)
        if not isinstance(cls, type):
            return live if live is not MISSING else HOLE
        obj = _claimed_or_new(cls, ref, live, restore, extra)
        if obj is HOLE:
            return live if live is not MISSING else HOLE
        restore.take(ref, obj)
        if items is not None:
            _restore_items(obj, solid_base(cls), items, extra, restore)
        names = attributes_of(obj)
        if names is not None:
            made = {one: names[one] for one in NOT_CARRIED.get(cls, ()) if one in names}
            restore.names(names, attributes)
            names.update(made)
        restore.slots(obj, slots)
        return obj


class Data(Kind):
    """A container with so many objects that it is taken for data, which each process has itself."""

    name = "data"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        walk.is_opaque(obj, path)
        return type(obj).__name__, len(obj)

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        kind, count = body
        if type(live).__name__ == kind and len(live) == count:
            return restore.take(ref, live)
        restore.note(f"a {kind} of {count:,} items was taken for data, and is another here")
        return HOLE if live is MISSING else live


def _items(obj: Any, base: Any, walk: "Walk", path: Path) -> tuple[Any, Any]:
    """Return references to the items of a container, and what else it keeps."""
    if base in (object, types.SimpleNamespace):
        return None, None
    if issubclass(base, dict):
        keys, values = [*base.keys(obj)], [*base.values(obj)]
        refs = walk.refs(values, path, lambda n: _key_label(keys[n]))
        pairs = [*zip(walk.refs(keys, path, lambda n: f".<key {n}>"), refs, strict=True)]
        if base is collections.defaultdict:
            return pairs, walk.ref(obj.default_factory, path, ".default_factory")
        return pairs, None
    if base is set:
        content = sets.content_of(obj)
        return [walk.ref(one, path, "{}") for one in content.entries], tuple(content.table)
    found = walk.refs([*base.__iter__(obj)], path, item)
    return found, obj.maxlen if base is collections.deque else None


def _key_label(key: object) -> str:
    return f"[{key!r}]" if type(key) in (str, int, bool, float) else "[...]"


def _claimed_or_new(cls: Any, ref: int, live: Any, restore: "Restore", extra: Any) -> Any:
    base = solid_base(cls)
    if cls is types.SimpleNamespace:
        base = cls
    fits = type(live) is cls and restore.is_free(live, ref)
    if not fits:
        spare = restore.spare(cls)
        live, fits = (spare, True) if spare is not MISSING else (live, False)
    if base is collections.deque and not (fits and live.maxlen == extra):
        fresh = base.__new__(cls)
        collections.deque.__init__(fresh, maxlen=extra)
        return fresh
    if fits:
        return live
    return _new(cls, base)


def _new(cls: Any, base: Any) -> Any:
    """Return an instance whose own code has not run; HOLE if its class does not allow that."""
    if cls is types.SimpleNamespace:
        return cls()
    try:
        return base.__new__(cls)
    except TypeError:  # An abstract class, or one in C whose __new__ wants arguments.
        return HOLE


def _restore_items(obj: Any, base: Any, items: Any, extra: Any, restore: "Restore") -> None:
    if issubclass(base, dict):
        _restore_pairs(obj, base, items, restore)
        if base is collections.defaultdict:
            obj.default_factory = restore.get(extra, obj.default_factory)
    elif base is set:
        entries = [one for one in map(restore.get, items) if one is not HOLE]
        content = sets.Content(entries, tuple(extra))
        now = sets.content_of(obj)
        if not same_objects(now.entries, entries) or now.table != content.table:
            sets.put_in(obj, content)
    else:
        _restore_list(obj, base, items, restore)


def _restore_pairs(obj: Any, base: Any, items: Any, restore: "Restore") -> None:
    old_keys = [*base.keys(obj)]
    spare = _spare_values(obj, base, items)
    new = []
    for number, (key_ref, value_ref) in enumerate(items):
        key = restore.get(key_ref, old_keys[number] if number < len(old_keys) else MISSING)
        if key is HOLE:
            continue
        old = base.get(obj, key, MISSING)
        if old is MISSING and type(key) is int:
            old = next(spare, MISSING)
        value = restore.get(value_ref, old)
        value = old if value is HOLE else value
        if value is not MISSING:
            new.append((key, value))
    now = [*base.items(obj)]
    flat = [one for pair in new for one in pair]
    if not same_objects([one for pair in now for one in pair], flat):
        base.clear(obj)
        for key, value in new:
            base.__setitem__(obj, key, value)


def _spare_values(obj: Any, base: Any, items: Any) -> Iterator[Any]:
    """Give the live values of numbers that the dict is not to have, in order.

    Numbers that count something, as hooks are counted, are others in each process. What they stand
    for keeps its identity.
    """
    wanted = {key_ref[0] for key_ref, _ in items if len(key_ref) == 1 and type(key_ref[0]) is int}
    return iter([v for key, v in base.items(obj) if type(key) is int and key not in wanted])


def _restore_list(obj: Any, base: Any, items: Refs, restore: "Restore") -> None:
    old = [*base.__iter__(obj)]
    found = [restore.get(one, old[n] if n < len(old) else MISSING) for n, one in enumerate(items)]
    new = [
        old[n] if one is HOLE else one
        for n, one in enumerate(found)
        if one is not HOLE or n < len(old)
    ]
    if not same_objects(old, new):
        base.clear(obj)
        base.extend(obj, new)


class Tuple(Kind):
    """A tuple, or an instance of a subclass without attributes, as a named tuple is."""

    name = "tuple"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        cls = type(obj)
        items = walk.refs([*tuple.__iter__(obj)], path, item)
        return None if cls is tuple else walk.ref(cls, path, ".<type>"), items

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        kind, items = body
        cls = tuple if kind is None else restore.cls(kind, live)
        if not (isinstance(cls, type) and issubclass(cls, tuple)):
            return HOLE
        old = [*tuple.__iter__(live)] if isinstance(live, tuple) else []
        new = [restore.get(one, old[n] if n < len(old) else MISSING) for n, one in enumerate(items)]
        if restore.knows(ref):  # It contains itself, by way of a list.
            return restore.known(ref)
        new = [
            (old[n] if n < len(old) else None) if one is HOLE else one for n, one in enumerate(new)
        ]
        if type(live) is cls and same_objects(old, new):
            return restore.take(ref, live)
        return restore.take(ref, tuple.__new__(cls, new))


class FrozenSet(Kind):
    """An immutable set, in the order of its table."""

    name = "frozenset"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        content = sets.content_of(obj)
        return [walk.ref(one, path, "{}") for one in content.entries], tuple(content.table)

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        items, table = body
        entries = [one for one in map(restore.get, items) if one is not HOLE]
        if type(live) is frozenset and same_objects([*live], entries):
            return restore.take(ref, live)
        return restore.take(ref, sets.made(frozenset, sets.Content(entries, tuple(table))))


class Error(Kind):
    """An exception object: its arguments and attributes."""

    name = "exception"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        names = vars(obj).items()
        return (
            walk.ref(type(obj), path, ".<type>"),
            walk.ref(obj.args, path, ".args"),
            {name: walk.ref(value, path, f".{name}") for name, value in names},
        )

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        kind, args, attributes = body
        cls: Any = restore.cls(kind, live)
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            return HOLE
        if type(live) is not cls or not restore.is_free(live, ref):
            live = cls.__new__(cls)
        restore.take(ref, live)
        live.args = restore.get(args, live.args)
        restore.names(vars(live), attributes)
        return live


class Member(Kind):
    """A member of an enumeration of the script's."""

    name = "enum"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        return walk.ref(type(obj), path, ".<type>"), obj.name

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        kind, name = body
        cls: Any = restore.cls(kind, live)
        if not (isinstance(cls, enum.EnumMeta) and name in cls.__members__):
            return HOLE
        return restore.take(ref, cls[name])
