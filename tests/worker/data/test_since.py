"""What others than the pass make of a loader's parts goes with the place."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, Sampler, TensorDataset

from trainmover.ids import Step
from trainmover.state.encode import decode, encode
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.loader_parts import numbers_of
from trainmover.worker.data.loops import Loops

DATA = TensorDataset(torch.arange(12.0))
TAKEN = 2


class Reshuffled(Sampler[int]):
    """In another order each time that it is gone over."""

    def __init__(self, generator: Any = None) -> None:
        self.walks, self.generator = 0, generator

    def __iter__(self) -> Iterator[int]:
        draws = self.generator or random.Random(self.walks)
        self.walks += 1
        return iter(sorted(range(12), key=lambda _: draws.random()))

    def __len__(self) -> int:
        return 12


class Fading(DataLoader[Any]):
    """Counts what it has given, and gives less of it."""

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        self.given = 0

    def __iter__(self) -> Any:
        for (x,) in super().__iter__():
            self.given += 1
            yield [x / self.given]


def seeded() -> "DataLoader[Any]":
    return DataLoader(DATA, 3, shuffle=True, generator=torch.Generator().manual_seed(1))


def counted() -> "DataLoader[Any]":
    return DataLoader(DATA, 3, sampler=Reshuffled())


def drawing(generator: Any) -> "DataLoader[Any]":
    return DataLoader(DATA, 3, sampler=Reshuffled(generator))


def distributed() -> "DataLoader[Any]":
    return DataLoader(DATA, 3, sampler=DistributedSampler(DATA, 1, 0))


def once_more(loader: Any) -> None:
    next(iter(loader))


def torchs(loader: Any) -> None:
    torch.rand(3, generator=loader.generator)


def of_sampler(loader: Any) -> None:
    loader.sampler.generator.random()


def another_epoch(loader: Any) -> None:
    loader.sampler.set_epoch(7)


@pytest.mark.parametrize(
    ("make", "meanwhile"),
    [
        pytest.param(seeded, torchs, id="drawn from"),
        pytest.param(seeded, once_more, id="shuffled once more"),
        pytest.param(counted, once_more, id="gone over once more"),
        pytest.param(lambda: drawing(numpy.random.RandomState(2)), of_sampler, id="numpy's"),
        pytest.param(lambda: drawing(random.Random(2)), of_sampler, id="Python's"),
        pytest.param(distributed, another_epoch, id="an epoch set"),
    ],
)
def test_what_lines_between_steps_make_of_a_loader_goes_with_its_place(
    make: Callable[[], Any], meanwhile: Callable[[Any], None]
) -> None:
    """The next passes are those of the undisturbed run."""
    loader = make()
    batches = Batches(loader, None)
    for _ in range(TAKEN):
        next(batches)
        meanwhile(loader)
    other = Batches(make(), None)
    other.resume(decode(encode(batches.position())))
    for _ in range(9):
        assert torch.equal(next(batches)[0], next(other)[0])
        assert numbers_of(loader) == numbers_of(other.over)


def test_where_nobody_else_makes_anything_of_it_a_place_is_as_short_as_before() -> None:
    for make in (seeded, counted, distributed):
        batches = Batches(make(), None)
        for _ in range(6):
            next(batches)
            assert "since" not in batches.position()
        other = Batches(make(), None)
        other.resume(batches.position())
        next(other)
        assert "since" not in other.position()


@pytest.mark.parametrize("reverse", [False, True])
def test_loops_that_share_a_generator_are_put_in_any_order(reverse: bool) -> None:
    def shared() -> list[Batches]:
        draws = torch.Generator().manual_seed(1)
        sizes = (3, 5)
        return [Batches(DataLoader(DATA, n, shuffle=True, generator=draws), None) for n in sizes]

    first, again = shared(), shared()
    for _ in range(5):
        [*map(next, first)]
    places = [batches.position() for batches in first]
    for batches, place in sorted(zip(again, places, strict=True), key=id, reverse=reverse):
        batches.resume(place)
    for _ in range(9):
        for one, other in zip(first, again, strict=True):
            assert torch.equal(next(one)[0], next(other)[0])


def test_what_a_loader_of_another_class_counts_goes_with_its_place() -> None:
    """And the script's shows it: what it is gone over by is a copy."""
    loader = Fading(DATA, 3)
    batches = Batches(loader, None)
    for _ in range(5):
        next(batches)
    assert loader.given == 5
    other = Batches(Fading(DATA, 3), None)
    other.resume(batches.position())
    assert other.over.given == 5
    loader.given = other.over.given = 1  # As a script may at any time.
    for _ in range(5):
        assert torch.equal(next(batches)[0], next(other)[0])


def test_what_is_made_of_the_loader_of_a_loop_around_goes_with_the_place_inside() -> None:
    def nested() -> tuple[Loops, Batches, Batches]:
        loops, outer, inner = Loops(), Batches(seeded(), None), Batches(range(4), 1)
        for batches in (outer, inner):
            loops.begin(batches)
            loops.enter(batches)
            loops.take(batches, b"", Step(0), [])
        return loops, outer, inner

    loops, outer, _ = nested()
    torchs(outer.over)
    ((*_, around), (_, place, *_)) = loops.positions(Step(1), [])
    assert around is not None
    others, again, _ = nested()
    others.resume(decode(encode(place)), [], [])
    drawn = [torch.rand(1, generator=one.over.generator) for one in (outer, again)]
    assert torch.equal(*drawn)
