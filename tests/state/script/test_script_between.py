"""Iterators around a loop over data that keep something of it are found, however far they are."""

import itertools
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


def counted() -> Iterator[int]:
    yield from range(20)


WAYS: dict[str, tuple[Callable[[Data], Iterable[object]], list[str]]] = {
    "plain": (lambda data: data, []),
    "a generator": (through, []),
    "zip": (lambda data: zip(data, range(3), strict=False), []),
    "zip behind a count": (lambda data: zip(counted(), data, strict=False), []),
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
