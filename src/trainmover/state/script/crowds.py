"""Many objects of the script's in one container, as records with a weight each, or particles.

They are too many to be looked at one by one. What code stores to on them after the set-up, and what
their generators of random numbers will draw from, is one variable together.
"""

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Any

from trainmover.state.encode import encode
from trainmover.state.kinds.generators import is_generator, state_of

OBJECTS_MAX = 2048
"""Of more than that many are looked at, spread over them."""
DEPTH_MAX = 3
"""Objects in objects in them."""
_LOOKED_AT = 64
_NATIVE = frozenset({type(None), bool, int, float, str})
HeldBy = Callable[[object], dict[str, Any]]


def seen_of(container: Any) -> list[object]:
    """Its first and last entries."""
    entries = container.values() if isinstance(container, dict) else container
    return [*islice(entries, _LOOKED_AT), *islice(reversed(entries), _LOOKED_AT)]


class Crowd:
    """Stands for them where variables are read.

    names    of attributes that count in objects of these classes: in the container, or in one of
             its objects
    held_by  an object's attributes, live
    """

    def __init__(self, container: Any, names: dict[type, Collection[str]], held_by: HeldBy) -> None:
        self._container = container
        self._names = {kind: sorted(known) for kind, known in names.items()}
        self._held_by = held_by
        self._is_deep = False  # As far as is known.

    def read(self, inside: Callable[[object], Any]) -> list[Any]:
        """How many there are, and what counts of each that is looked at."""
        folded: list[Any] = [len(self._container)]
        for one in self._spread():
            self._add(one, folded.append, inside, 0)
        return folded

    def _add(
        self, one: object, add: Callable[[Any], None], inside: Callable[[object], Any], depth: int
    ) -> None:
        if is_generator(one):
            self._is_deep = True
            return add(inside(encode(state_of(one))))  # type: ignore[arg-type]
        held = self._held_by(one)
        for name in self._names.get(type(one), ()):
            value = held[name] if name in held else _slot(one, name)
            if type(value) in _NATIVE:
                add(value)
            elif depth < DEPTH_MAX and (type(value) in self._names or is_generator(value)):
                self._is_deep = True
                self._add(value, add, inside, depth + 1)
            else:
                add(inside(value))

    def entries(self) -> list[object] | None:
        """All of them; None if there are too many, if one has no dict of its own, or if more counts
        than what these have."""
        if self._is_deep or len(self._container) > OBJECTS_MAX:
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
