# SPDX-License-Identifier: Apache-2.0
"""A kind of node: how objects of one layout are read, and restored in place."""

from typing import TYPE_CHECKING, Any

from trainmover.graph.nodes import Path, Ref

if TYPE_CHECKING:
    from trainmover.graph.restore import Restore
    from trainmover.graph.walk import Walk


Body = tuple[Any, ...]
"""What a kind keeps of an object: plain values, references, and lists and dicts of them."""


class Absent:
    """A mark where there is no object."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


MISSING: Any = Absent("MISSING")
"""No object lies here in this process."""
HOLE: Any = Absent("HOLE")
"""The object cannot be made in this process: its owner keeps what it has."""


class Kind:
    """Objects of one layout.

    name  in nodes; part of the wire format
    """

    name: str

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        """Return the body of an object's node."""
        raise NotImplementedError

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        """Return the object that a node stands for here, filled; HOLE if it cannot be had.

        A live object is kept where that is possible, else a new one is made.

        live  the object that lies at the node's path in this process, or MISSING
        body  what `read` returned, perhaps in another process
        """
        raise NotImplementedError


def same_objects(some: Any, others: Any) -> bool:
    """Tell whether two sequences hold the very same objects."""
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


_COMPARED = frozenset({int, str, bytes, range})


def is_same_part(old: Any, new: Any) -> bool:
    """Tell whether two parts are one object, or equal values of a type without other bits."""
    return old is new or (type(old) is type(new) and type(new) in _COMPARED and old == new)


def item(number: int) -> str:
    """Return the label of an item."""
    return f"[{number}]"


Refs = list[Ref]
