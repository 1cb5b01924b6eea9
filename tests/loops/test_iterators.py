"""Twins of builtins: the same behaviour, and counts that can be read."""

import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from trainmover.loops.iterators import Enumerate, Map, Zip, twin


def items(*values: Any) -> Any:
    yield from values


class Broken:
    """Fails as it is iterated over."""

    def __iter__(self) -> Any:
        raise KeyError("iter")


class Odd:
    """Ends once, and goes on."""

    number = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        self.number += 1
        if self.number % 3 == 0:
            raise StopIteration
        return self.number


CALLS: list[tuple[Any, Callable[[], tuple[Any, ...]], dict[str, Any]]] = [
    (enumerate, lambda: (items(1, 2),), {}),
    (enumerate, lambda: (items(1, 2), 5), {}),
    (enumerate, lambda: (items(1), 2**70), {}),
    (enumerate, lambda: (items(1), True), {}),
    (enumerate, lambda: (items(1, 2),), {"start": -1}),
    (enumerate, lambda: (items(1), 1.5), {}),
    (enumerate, lambda: (items(1), 1), {"start": 2}),
    (enumerate, lambda: (items(1),), {"begin": 2}),
    (enumerate, lambda: (), {}),
    (enumerate, lambda: (3,), {}),
    (enumerate, lambda: (Broken(),), {}),
    (enumerate, lambda: (Odd(),), {}),
    (enumerate, lambda: ([1, 2], 3), {}),
    (zip, lambda: (), {}),
    (zip, lambda: (items(),), {}),
    (zip, lambda: (items(1, 2), [3, 4]), {}),
    (zip, lambda: (items(1, 2), items(3)), {}),
    (zip, lambda: (items(1), items(2, 3)), {}),
    (zip, lambda: (items(1, 2), items(3)), {"strict": True}),
    (zip, lambda: (items(1), items(2, 3)), {"strict": True}),
    (zip, lambda: (items(1), items(2), items(3, 4)), {"strict": True}),
    (zip, lambda: (items(1, 2), items(2, 3), items(3)), {"strict": True}),
    (zip, lambda: (items(1, 2), items(2, 3)), {"strict": 1}),
    (zip, lambda: (items(1), 3), {}),
    (zip, lambda: (items(1), Broken()), {}),
    (zip, lambda: (items(1),), {"strictly": True}),
    (zip, lambda: (Odd(), Odd()), {}),
    (zip, lambda: ("ab", (1, 2)), {}),
    (map, lambda: (str, items(1, 2)), {}),
    (map, lambda: (max, items(1, 2, 3), items(3, 0)), {}),
    (map, lambda: (str,), {}),
    (map, lambda: (), {}),
    (map, lambda: (str, 3), {}),
    (map, lambda: (3, items(1)), {}),
    (map, lambda: (next, items(iter([1]), iter([]))), {}),
    (map, lambda: (lambda x: 1 / x, items(1, 0, 2)), {}),
    (map, lambda: (str, [1, 2]), {}),
]


def outcome(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What it gives, with what it raises: also when it is asked again behind its end."""
    found: list[Any] = []
    try:
        iterator = function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001
        return [type(error), str(error)]
    for _ in range(6):
        try:
            found.append(next(iterator))
        except Exception as error:  # noqa: BLE001
            found.append((type(error), str(error), error.__context__))
    return found


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_a_twin_does_what_the_builtin_does(number: int) -> None:
    function, args, kwargs = CALLS[number]
    assert outcome(twin(function), args(), kwargs) == outcome(function, args(), kwargs)


def test_twins_serve_only_what_is_not_ready() -> None:
    assert type(twin(enumerate)([1])) is enumerate
    assert type(twin(zip)([1], range(2), {})) is zip
    assert type(twin(map)(str, "ab")) is map
    assert type(twin(enumerate)(items(1))) is Enumerate
    assert type(twin(zip)([1], items(1))) is Zip
    assert type(twin(map)(str, items(1))) is Map
    assert twin(print) is print


def test_a_twin_is_an_instance_of_the_builtin() -> None:
    twins = twin(enumerate)(items()), twin(zip)(items()), twin(map)(str, items())
    for one, kind in zip(twins, (enumerate, zip, map), strict=True):
        assert isinstance(one, kind)
        assert repr(one).startswith(f"<{kind.__name__} object at ")
        assert iter(one) is one


def test_counts_and_iterators_can_be_read_and_set() -> None:
    numbered = twin(enumerate)(items("a", "b"), 3)
    assert next(numbered) == (3, "a")
    assert numbered.index == 4
    numbered.index, numbered.iterator = 8, iter("x")
    assert [*numbered] == [(8, "x")]
    both = twin(zip)(items(1, 2), itertools.count())
    assert next(both) == (1, 0)
    both.iterators = (iter("y"), iter("z"))
    assert [*both] == [("y", "z")]


def test_the_part_of_a_row_that_is_there_can_be_read() -> None:
    seen = []

    def second() -> Any:
        seen.append([*both.row])
        yield 2

    both = twin(zip)(items(1), second())
    assert [*both] == [(1, 2)]
    assert (seen, both.row) == ([[1]], [])


def test_a_twin_is_copied_and_pickled_as_the_builtin() -> None:
    numbered = twin(enumerate)(iter([5, 6, 7]), 1)
    next(numbered)
    assert [*copy.copy(numbered)] == [(2, 6), (3, 7)]
    strict = twin(zip)(iter([1, 2]), iter([3]), strict=True)
    for one, kind in ((numbered, enumerate), (strict, zip), (twin(map)(str, iter([1])), map)):
        assert type(pickle.loads(pickle.dumps(one))) is kind
    with pytest.raises(ValueError, match="shorter"):
        [*pickle.loads(pickle.dumps(strict))]
