"""Many objects of the script's in one container, as records with a weight each, or particles.

They are too many to be looked at one by one. What code stores to on them after the set-up is one
variable together.
"""

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Any

OBJECTS_MAX = 2048
"""Of more than that many are looked at, spread over them."""
_LOOKED_AT = 64
_NATIVE = frozenset({type(None), bool, int, float, str})
HeldBy = Callable[[object], dict[str, Any]]


def seen_of(container: Any) -> list[object]:
    """Its first and last entries."""
    entries = container.values() if isinstance(container, dict) else container
    return [*islice(entries, _LOOKED_AT), *islice(reversed(entries), _LOOKED_AT)]


class Crowd:
    """Stands for them where variables are read.

    names    of attributes that are stored to on objects of these classes
    held_by  an object's attributes, live
    """

    def __init__(self, container: Any, names: dict[type, Collection[str]], held_by: HeldBy) -> None:
        self._container = container
        self._names = {kind: sorted(known) for kind, known in names.items()}
        self._held_by = held_by

    def read(self, inside: Callable[[object], Any]) -> list[Any]:
        """How many there are, and what was stored on each that is looked at."""
        folded: list[Any] = [len(self._container)]
        add = folded.append
        for one in self._spread():
            held = self._held_by(one)
            for name in self._names.get(type(one), ()):
                value = held[name] if name in held else _slot(one, name)
                add(value if type(value) in _NATIVE else inside(value))
        return folded

    def entries(self) -> list[object] | None:
        """All of them; None if there are too many, or if one has no dict of its own."""
        if len(self._container) > OBJECTS_MAX:
            return None
        every = [one for one in self._inside() if type(one) in self._names]
        return every if all(map(self._held_by, every)) else None

    def _spread(self) -> Iterator[object]:
        step = -(-len(self._container) // OBJECTS_MAX)
        return islice(self._inside(), 0, None, max(1, step))

    def _inside(self) -> Collection[object]:
        held = self._container
        values: Collection[object] = held.values() if isinstance(held, dict) else held
        return values


def _slot(one: object, name: str) -> object:
    """None also where the object has none of that name, or only its class."""
    try:
        return object.__getattribute__(one, name)
    except AttributeError:
        return None
