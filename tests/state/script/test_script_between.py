"""Iterators around a loop over data that keep something of it are found, however far they are."""

import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator

import pytest

from trainmover.state.script.between import keeping


class Data:
    """Says at each fetch what lies between it and who fetches."""

    def __init__(self) -> None:
        self.found: list[list[str]] = []

    def __iter__(self) -> "Data":
        return self

    def __next__(self) -> int:
        frame, frames = sys._getframe(1), []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back  # type: ignore[assignment]
        self.found.append(keeping(self, frames))
        return len(self.found)


def through(values: Iterable[int]) -> Iterator[int]:
    yield from values


def doubled(values: Iterable[int]) -> Iterator[int]:
    for value in values:
        yield 2 * value


class Meter:
    level = 3


METER = Meter()


def levels() -> Iterator[int]:
    while True:
        yield METER.level


def doubled_one(value: int) -> int:
    return math.ceil(2 * value * math.tau)


def raised(value: int, by: int = 1) -> int:
    return value + METER.level * by


class Levels:
    def __iter__(self) -> "Levels":
        return self

    def __next__(self) -> int:
        return METER.level


def counted() -> Iterator[int]:
    yield from range(20)


WAYS: dict[str, tuple[Callable[[Data], Iterable[object]], list[str]]] = {
    "plain": (lambda data: data, []),
    "a generator": (through, []),
    "zip": (lambda data: zip(data, range(3), strict=False), []),
    "zip behind a count": (lambda data: zip(counted(), data, strict=False), []),
    "zip behind a map of what is given": (
        lambda data: zip(map(doubled_one, range(9)), data, strict=False),
        [],
    ),
    "zip behind a map by a meter": (
        lambda data: zip(map(raised, itertools.repeat(1)), data, strict=False),
        ["raised() in a zip"],
    ),
    "zip behind a map by a part of one": (
        lambda data: zip(map(functools.partial(raised, by=2), range(9)), data, strict=False),
        ["raised() in a zip"],
    ),
    "zip behind a function that is called": (
        lambda data: zip(iter(lambda: raised(1), None), data, strict=False),
        ["<lambda>() in a zip"],
    ),
    "zip behind some of an iterator's own": (
        lambda data: zip(itertools.islice(Levels(), 9), data, strict=False),
        ["Levels() in a zip"],
    ),
    "zip behind what a meter says": (
        lambda data: zip(levels(), data, strict=False),
        ["levels() in a zip"],
    ),
    "zip before it": (lambda data: zip(data, levels(), strict=False), []),
    "enumerate, map": (lambda data: enumerate(map(abs, data)), []),
    "chain": (lambda data: itertools.chain(data, [1]), []),
    "cycle": (itertools.cycle, ["itertools.cycle"]),
    "islice": (lambda data: itertools.islice(data, 9), ["itertools.islice"]),
    "pairwise": (itertools.pairwise, ["itertools.pairwise"]),
    "accumulate": (itertools.accumulate, ["itertools.accumulate"]),
    "tee": (lambda data: itertools.tee(data)[0], ["itertools.tee"]),
    "groupby": (itertools.groupby, ["itertools.groupby"]),
    "behind zip": (lambda data: itertools.cycle(zip(data)), ["itertools.cycle"]),
    "behind a generator": (lambda data: itertools.cycle(through(data)), ["itertools.cycle"]),
    "behind a loop": (lambda data: itertools.cycle(doubled(data)), ["itertools.cycle"]),
    "in a generator": (lambda data: through(itertools.cycle(data)), ["itertools.cycle"]),
    "two": (
        lambda data: itertools.islice(itertools.cycle(data), 9),
        ["itertools.cycle", "itertools.islice"],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_keeps_something_is_found(way: str) -> None:
    make, expected = WAYS[way]
    data = Data()
    for _ in zip(range(2), make(data), strict=False):
        pass
    assert data.found[0] == expected


def test_those_of_other_loops_are_none_of_this_one() -> None:
    data, other = Data(), Data()
    cycled = itertools.cycle(other)
    next(cycled)
    next(data)
    assert data.found == [[]]
