# SPDX-License-Identifier: Apache-2.0
"""Many objects of the script's in one container, as records with a weight each, or particles.

They are too many to be looked at one by one. What code stores to on them after the set-up, and what
their generators of random numbers will draw from, is one variable together. They may lie in
containers themselves, as in pairs of a name and an object; in a set they have no order.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any

from trainmover.state.encode import encode
from trainmover.state.kinds.generators import is_generator, state_of

OBJECTS_MAX = 2048
"""Of more than that many are looked at, spread over them."""
DEPTH_MAX = 3
"""Objects in objects in them, and containers in containers."""
_OF_A_KIND = 64
_NATIVE = frozenset({type(None), bool, int, float, str})
_CONTAINERS: tuple[type[Any], ...] = (dict, list, tuple, deque, set, frozenset)
HeldBy = Callable[[object], dict[str, Any]]


def seen_of(container: Any) -> list[object]:
    """Of each class the first objects in it, and in containers in it."""
    found: dict[type, list[object]] = {}
    for one in objects_in(_spread(container)):
        of_kind = found.setdefault(type(one), [])
        if len(of_kind) < _OF_A_KIND:
            of_kind.append(one)
    return [one for of_kind in found.values() for one in of_kind]


def objects_in(entries: Iterable[object], depth: int = 0) -> Iterator[object]:
    """No plain values, and no containers but their objects."""
    for one in entries:
        kind = type(one)
        if kind in _CONTAINERS or issubclass(kind, tuple):
            if depth < DEPTH_MAX:
                yield from objects_in(islice(_parts_of(one), OBJECTS_MAX), depth + 1)
        elif kind not in _NATIVE:
            yield one


def _parts_of(container: Any) -> Iterator[object]:
    if isinstance(container, dict):
        yield from dict.values(container)
    yield from _base_of(container).__iter__(container)


def _spread(container: Any) -> Iterator[object]:
    step = max(1, -(-_size_of(container) // OBJECTS_MAX))
    if isinstance(container, dict):
        yield from islice(dict.values(container), 0, None, step)
    yield from islice(_base_of(container).__iter__(container), 0, None, step)


def _size_of(container: Any) -> int:
    size: int = _base_of(container).__len__(container)
    return size


def _base_of(container: object) -> Any:
    """Of Python's own: none of a class's own code is run."""
    return next(one for one in _CONTAINERS if isinstance(container, one))


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
        each: list[list[Any]] = []
        for one in _spread(self._container):
            folded: list[Any] = []
            self._add(one, folded.append, inside, 0)
            each.append(folded)
        if isinstance(self._container, set | frozenset):
            each.sort(key=repr)
        return [_size_of(self._container), *(value for folded in each for value in folded)]

    def _add(
        self, one: object, add: Callable[[Any], None], inside: Callable[[object], Any], depth: int
    ) -> None:
        if is_generator(one):
            self._is_deep = True
            return add(inside(encode(state_of(one))))  # type: ignore[arg-type]
        if isinstance(one, _CONTAINERS):
            self._is_deep = True
            for part in objects_in([one], depth):
                self._add(part, add, inside, depth + 1)
            return None
        held = self._held_by(one)
        for name in self._names.get(type(one), ()):
            value = held[name] if name in held else _slot(one, name)
            if type(value) in _NATIVE:
                add(value)
            elif depth < DEPTH_MAX and self._goes_on(value):
                self._is_deep = True
                self._add(value, add, inside, depth + 1)
            else:
                add(inside(value))
        return None

    def _goes_on(self, value: object) -> bool:
        """Whether what counts of it is known by its class."""
        if isinstance(value, _CONTAINERS):
            return any(type(one) in self._names for one in objects_in([value]))
        return type(value) in self._names or is_generator(value)

    def entries(self) -> list[object] | None:
        """All of them; None if there are too many, if one has no dict of its own, or if more counts
        than what these have."""
        if self._is_deep or _size_of(self._container) > OBJECTS_MAX:
            return None
        every = [one for one in _spread(self._container) if type(one) in self._names]
        return every if all(map(self._held_by, every)) else None


def _slot(one: object, name: str) -> object:
    """None also where the object has none of that name, or only its class."""
    try:
        return object.__getattribute__(one, name)
    except AttributeError:
        return None
