# SPDX-License-Identifier: Apache-2.0
"""Iterators of rewritten loops (`loops`): how far each one is."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.graph.kinds.kind import HOLE, MISSING, Body, Kind
from trainmover.graph.layout import slot_values
from trainmover.graph.nodes import Path
from trainmover.loops.iterators import Enumerate, Map, Zip
from trainmover.loops.turns import KINDS, Loop, PlainLoop, iterate, repeat

if TYPE_CHECKING:
    from trainmover.graph.restore import Restore
    from trainmover.graph.walk import Walk

TYPES = frozenset(KINDS)
_OF_FOR = frozenset({Loop, PlainLoop})
_NUMBERS = ("turn_count", "has_ended", "is_transaction", "is_repeat")


class LoopIterator(Kind):
    """The iterator of a `for` or of a `while`."""

    name = "loop"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        numbers = {name: getattr(obj, name) for name in _NUMBERS}
        if type(obj) not in _OF_FOR:
            return numbers, None, None
        item = walk.ref(obj.item, path, ".item") if hasattr(obj, "item") else None
        return numbers, walk.ref(obj.iterator, path, ".iterator"), item

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        numbers, iterator, item = body
        kinds = TYPES - _OF_FOR if iterator is None else _OF_FOR
        if type(live) not in kinds or not restore.is_free(live, ref):
            live = repeat() if iterator is None else iterate(())
        restore.take(ref, live)
        if iterator is not None:
            below = restore.get(iterator, live.iterator)
            if below is not live.iterator and below is not HOLE:
                live.iterator = below
        for name, value in numbers.items():
            setattr(live, name, value)
        if item is not None:
            live.item = restore.get(item, getattr(live, "item", MISSING))
        elif hasattr(live, "item"):
            del live.item
        return live


_NEW: dict[Any, Callable[[], Any]] = {
    Enumerate: lambda: Enumerate(()),
    Zip: Zip,
    Map: lambda: Map(max),
}
_NAMES = {"enumerate": Enumerate, "zip": Zip, "map": Map}
TWINS = frozenset(_NEW)


class Twin(Kind):
    """A twin of `enumerate`, `zip` or `map` that rewritten code uses: its slots."""

    name = "twin"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        slots = slot_values(obj).items()
        return type(obj).__name__, {name: walk.ref(one, path, f".{name}") for name, one in slots}

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        name, slots = body
        cls: Any = _NAMES[name]
        if type(live) is not cls or not restore.is_free(live, ref):
            live = _NEW[cls]()
        restore.take(ref, live)
        restore.slots(live, slots)
        return live
