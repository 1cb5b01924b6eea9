# SPDX-License-Identifier: Apache-2.0
"""Handles: objects that hold nothing of a script, but have one name in all processes.

Process groups are handles. Each process has its own object of a name, and is given that one.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from trainmover.graph.kinds.kind import HOLE, Body, Kind
from trainmover.graph.nodes import Path

if TYPE_CHECKING:
    from trainmover.graph.restore import Restore
    from trainmover.graph.walk import Walk


class Named(NamedTuple):
    """Table of the handles of one type.

    tell  returns the name of one; "" if it has none any more
    own   returns those of this process, by name
    """

    tell: Callable[[Any], str]
    own: Callable[[], Mapping[str, object]]


_TYPES: dict[type, Named] = {}


def know_handles(
    cls: type, tell: Callable[[Any], str], own: Callable[[], Mapping[str, object]]
) -> None:
    """Take objects of a type for handles from now on: see `Named`."""
    _TYPES[cls] = Named(tell, own)


def is_handle(cls: type) -> bool:
    """Tell whether objects of a type are handles."""
    return cls in _TYPES


class Handle(Kind):
    """A handle, by its name."""

    name = "handle"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        name = _TYPES[type(obj)].tell(obj)
        if not name:
            walk.is_opaque(obj, path)
        return type(obj).__qualname__, name

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        kind, name = body
        for cls, known in _TYPES.items():
            if cls.__qualname__ == kind:
                is_it = type(live) is cls and known.tell(live) == name
                found = live if is_it else known.own().get(name, HOLE) if name else HOLE
                return found if found is HOLE else restore.take(ref, found)
        return HOLE
