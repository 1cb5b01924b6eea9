# SPDX-License-Identifier: Apache-2.0
"""Iterators over a source that tell where they stand, and can be told to stand elsewhere.

Those over data loaders are such: their place is a few numbers, and what their pass began with.
"""

from typing import TYPE_CHECKING, Any, Protocol

from trainmover.graph.kinds.kind import HOLE, Body, Kind
from trainmover.graph.nodes import Path

if TYPE_CHECKING:
    from trainmover.graph.restore import Restore
    from trainmover.graph.walk import Walk


class Positioned(Protocol):
    """Iterator over a source.

    source    what it goes over
    position  where it stands: a plain value, and one that stays the same for long
    """

    source: Any

    @property
    def position(self) -> tuple[dict[str, Any], dict[str, bytes]]: ...

    @classmethod
    def standing_nowhere(cls, source: Any) -> "Positioned":
        """Return a new one, which is told next where to stand."""

    def stand(
        self, source: Any, here: dict[str, Any], begun: dict[str, bytes], *, is_own: bool
    ) -> None:
        """Stand there, over this source.

        is_own  it has stood there itself; False: another run has, whose values may have been put
                into any object that this one has given
        """


_TYPES: set[type] = set()


def know_positioned(cls: type[Positioned]) -> None:
    """Ask objects of this type for their position from now on."""
    _TYPES.add(cls)


def is_positioned(cls: type) -> bool:
    """Tell whether objects of a type are asked for their position."""
    return cls in _TYPES


class PositionedIterator(Kind):
    """An iterator of such a type."""

    name = "positioned"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        here, begun = obj.position
        source = walk.ref(obj.source, path, ".source")
        return type(obj).__qualname__, source, here, walk.ref(begun, path, ".begun")

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        name, source, here, begun = body
        cls: Any = next((one for one in _TYPES if one.__qualname__ == name), None)
        if cls is None:
            return HOLE
        fits = type(live) is cls and restore.is_free(live, ref)
        over = restore.get(source, live.source) if fits else restore.get(source)
        if over is HOLE:
            return HOLE
        if not fits:
            live = cls.standing_nowhere(over)
        restore.take(ref, live)
        live.stand(over, here, restore.get(begun), is_own=restore.is_of_this_run)
        return live
