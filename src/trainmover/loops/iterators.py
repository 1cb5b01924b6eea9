# SPDX-License-Identifier: Apache-2.0
"""Twins of `enumerate`, `zip` and `map` whose counts and iterators are attributes.

Rewritten code calls them instead of the builtins. Where all arguments are containers that are ready
in memory, it gets the builtin: iterating over those runs no code of a script, and is faster. A twin
is an instance of the builtin that it stands for.
"""

import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_ENUMERATE, _ZIP, _MAP = enumerate, zip, map
"""The builtins themselves: a script may put others in their place."""

READY = frozenset(
    {list, tuple, range, str, bytes, bytearray, dict, set, frozenset, deque}
    | {type({}.keys()), type({}.values()), type({}.items())}
)
"""Types that iterate over what they hold."""


class Enumerate(enumerate):  # type: ignore[type-arg]
    """enumerate: `index` is the number of the next item."""

    __slots__ = ("index", "iterator")
    index: int
    iterator: Iterator[Any]

    def __new__(cls, iterable: Iterable[Any], start: Any = 0) -> Any:
        self: Any = super().__new__(cls, ())
        self.index = operator.index(start)
        self.iterator = iter(iterable)
        return self

    def __next__(self) -> tuple[int, Any]:
        item = next(self.iterator)
        index = self.index
        self.index += 1
        return index, item

    def __reduce__(self) -> Any:
        return _ENUMERATE, (self.iterator, self.index)


class Zip(zip):  # type: ignore[type-arg]
    """zip: `row` is the part of the next tuple that is there already."""

    __slots__ = ("is_strict", "iterators", "row")
    is_strict: bool
    iterators: tuple[Iterator[Any], ...]
    row: list[Any]

    def __new__(cls, *iterables: Iterable[Any], strict: Any = False) -> Any:
        self: Any = super().__new__(cls)
        self.is_strict = bool(strict)
        self.iterators = tuple([iter(one) for one in iterables])
        self.row = []
        return self

    def __next__(self) -> tuple[Any, ...]:
        row: list[Any] = []
        self.row = row
        try:
            for iterator in self.iterators:
                row.append(next(iterator))
            return tuple(row)
        except StopIteration:
            if not self.is_strict:
                raise
        finally:
            self.row = []
        self._check_lengths(len(row))
        raise StopIteration

    def _check_lengths(self, count: int) -> None:
        """Raise ValueError if the iterators, of which `count` gave an item, differ in length."""
        if count:
            raise ValueError(f"zip() argument {count + 1} is shorter than {_arguments(count)}")
        for number, iterator in _ENUMERATE(self.iterators[1:], 1):
            for _ in iterator:
                raise ValueError(f"zip() argument {number + 1} is longer than {_arguments(number)}")

    def __reduce__(self) -> Any:
        return (_ZIP, self.iterators, True) if self.is_strict else (_ZIP, self.iterators)


class Map(map):  # type: ignore[type-arg]
    """map, with the iterators as an attribute."""

    __slots__ = ("function", "iterators")
    function: Callable[..., Any]
    iterators: tuple[Iterator[Any], ...]

    def __new__(cls, function: Callable[..., Any], *iterables: Iterable[Any]) -> Any:
        self: Any = super().__new__(cls, function, ())
        self.function = function
        self.iterators = tuple([iter(one) for one in iterables])
        return self

    def __next__(self) -> Any:
        return self.function(*[next(one) for one in self.iterators])

    def __reduce__(self) -> Any:
        return _MAP, (self.function, *self.iterators)


def _arguments(count: int) -> str:
    return "argument 1" if count == 1 else f"arguments 1-{count}"


def make_enumerate(*args: Any, **kwargs: Any) -> Any:
    """Make what `enumerate` of these arguments is, or raise what it raises."""
    is_right = len(args) in (1, 2) and (not kwargs or (len(args) == 1 and [*kwargs] == ["start"]))
    if is_right and type(args[0]) not in READY:
        return Enumerate(*args, **kwargs)
    return _ENUMERATE(*args, **kwargs)


def make_zip(*args: Any, **kwargs: Any) -> Any:
    """Make what `zip` of these arguments is, or raise what it raises."""
    if kwargs.keys() <= {"strict"} and not all([type(one) in READY for one in args]):
        return Zip(*args, **kwargs)
    return _ZIP(*args, **kwargs)


def make_map(*args: Any, **kwargs: Any) -> Any:
    """Make what `map` of these arguments is, or raise what it raises."""
    if not kwargs and not all([type(one) in READY for one in args[1:]]):
        return Map(*args)
    return _MAP(*args, **kwargs)


def twin(function: Any) -> Any:
    """Return what makes the twins of a builtin, and anything else as it is."""
    if function is _ENUMERATE:
        return make_enumerate
    if function is _ZIP:
        return make_zip
    if function is _MAP:
        return make_map
    return function


NAMES = frozenset({"enumerate", "zip", "map"})
"""Names by which the builtins are called, unless the script gives these names to something else."""

for _twin, _builtin in ((Enumerate, _ENUMERATE), (Zip, _ZIP), (Map, _MAP)):
    _twin.__name__ = _twin.__qualname__ = _builtin.__name__
    _twin.__module__ = "builtins"
