"""Data that a script makes while it trains is given to who resumes a pass over it, or compared."""

import array
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset, WeightedRandomSampler

from trainmover.errors import StateMismatch
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.made_of import MadeOf

BASE = TensorDataset(torch.arange(40.0).reshape(20, 2), torch.arange(20))


def made_of() -> MadeOf:
    """The script has gone over BASE before its first step."""
    made = MadeOf()
    made.note(DataLoader(BASE, batch_size=4))
    made.note(DataLoader(ROWS))  # type: ignore[arg-type]
    for known in (*map(DataLoader, FOLDS), *HALVES):
        made.note(known)
    return made


def begun(loader: Any, fetches: int = 1) -> Batches:
    batches = Batches(loader, None)
    batches.watch(lambda: 0, lambda _: set(), made_of())
    for _ in range(fetches):
        next(batches)
    return batches


def resumed(loader: Any, there: Batches) -> Batches:
    batches = begun(loader, 0)
    batches.resume(there.position())
    return batches


class Noisy(torch.utils.data.Dataset[Any]):
    """Of the script's own."""

    def __init__(self, noise: float, more: Any = None) -> None:
        self.more, self.made_at = more, time.time()
        self.data = {"x": [torch.ones(2) * noise, numpy.ones(3) * noise] * 4}

    def __len__(self) -> int:
        return 8

    def __getitem__(self, place: int) -> Any:
        return self.data["x"][0]


class Strong(nn.Module):
    """A transform."""

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength

    def forward(self, x: Any) -> Any:
        return x


class Odd(torch.utils.data.Dataset[Any]):
    """With what not all can be read or sorted."""

    def __init__(self, n: int) -> None:
        self.days = numpy.arange(n, n + 3).astype("datetime64[D]")
        self.names = {0: "person", "x": n}
        vars(self).update({5: "five"})
        self.log = logging.getLogger("odd")
        self.made_at = [object()]

    def __len__(self) -> int:
        return 8

    def __getitem__(self, place: int) -> int:
        return place


ROWS = [torch.full((2,), float(i)) for i in range(30)]
WAYS = [lambda x: x, lambda x: -x]
FOLDS = [Subset(BASE, range(0, 10)), Subset(BASE, range(10, 20))]
HALVES = [DataLoader(BASE, batch_size=2), DataLoader(BASE, batch_size=5)]

MADE: dict[str, Callable[[int], Any]] = {
    "labels": lambda n: DataLoader(TensorDataset(BASE.tensors[0], torch.arange(20) * n)),
    "a list of samples": lambda n: DataLoader([torch.full((2,), float(n + i)) for i in range(9)]),  # type: ignore[arg-type]
    "a dataset of its own": lambda n: DataLoader(Noisy(n)),
    "a list of batches": lambda n: [torch.full((2,), float(n + i)) for i in range(9)],
    "a function to put samples together": lambda n: DataLoader(BASE, collate_fn=lambda _: n),
    "numbers of numpy's": lambda n: DataLoader(Subset(BASE, list(numpy.arange(n, n + 9)))),
    "a range": lambda n: DataLoader(Subset(BASE, range(n, n + 9))),
    "an array": lambda n: DataLoader(Subset(BASE, array.array("i", range(n, n + 9)))),  # type: ignore[arg-type]
    "many by name": lambda n: DataLoader(Noisy(1, {i: torch.tensor(i + n) for i in range(3000)})),
    "a transform": lambda n: DataLoader(Noisy(1, Strong(n))),
    "one of two functions": lambda n: DataLoader(
        Noisy(1, (lambda x: x) if n > 3 else (lambda x: -x))
    ),
    "one default of a function": lambda n: DataLoader(Noisy(1, lambda x, by=n: x * by)),
    "a layer in a layer": lambda n: DataLoader(Noisy(1, nn.Sequential(Strong(n)))),
    "what is masked": lambda n: DataLoader(Noisy(1, numpy.ma.array([1, 2], mask=[n > 3, False]))),
    "examples with a gradient": lambda n: DataLoader(
        TensorDataset(torch.full((9,), float(n), requires_grad=True))
    ),
    "days": lambda n: DataLoader(Odd(n)),
    "rows that were there": lambda n: DataLoader(ROWS[n : n + 9]),  # type: ignore[arg-type]
    "one of two parts that were there": lambda n: DataLoader(FOLDS[n > 3]),
    "several such parts": lambda n: DataLoader(ConcatDataset(FOLDS[:: 1 if n > 3 else -1])),
    "one of two loaders that were there": lambda n: HALVES[n > 3],
    "batches and some of them again": lambda n: [*ROWS[:9], ROWS[n]],
}


@pytest.mark.parametrize("kind", MADE)
def test_other_data_is_refused(kind: str) -> None:
    there = begun(MADE[kind](3))
    with pytest.raises(StateMismatch):
        resumed(MADE[kind](5), there)


@pytest.mark.parametrize("kind", MADE)
def test_the_same_data_is_the_same(kind: str) -> None:
    there = begun(MADE[kind](3))
    resumed(MADE[kind](3), there)


class Counting(torch.utils.data.Sampler[int]):
    """Begins one further in each pass."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        return iter([(place + self.passes) % 20 for place in range(20)])

    def __len__(self) -> int:
        return 20


def test_what_a_sampler_counts_goes_with_the_place() -> None:
    there = Batches(DataLoader(BASE, sampler=Counting()), None)
    there.watch(lambda: 0, lambda _: set(), made_of())
    for _ in range(45):
        next(there)
    here = resumed(DataLoader(BASE, sampler=Counting()), there)
    assert next(here)[1].tolist() == next(there)[1].tolist()


def test_as_many_passes_as_there_must_be_made() -> None:
    there, here = Batches(HALVES[0], 3), Batches(HALVES[0], 4)
    for one in (there, here):
        one.watch(lambda: 0, lambda _: set(), made_of())
    next(there)
    with pytest.raises(StateMismatch, match="passes"):
        here.resume(there.position())


def test_a_choice_is_given() -> None:
    there = begun(DataLoader(Subset(BASE, [3, 1, 9, 4, 12]), batch_size=2))
    here = resumed(DataLoader(Subset(BASE, [0, 2, 5, 6, 7]), batch_size=2), there)
    assert next(here)[1].tolist() == next(there)[1].tolist() == [9, 4]


def test_weights_are_given() -> None:
    def loader(weights: list[float]) -> Any:
        generator = torch.Generator().manual_seed(3)
        return DataLoader(BASE, sampler=WeightedRandomSampler(weights, 20, generator=generator))

    there = begun(loader([1.0] * 10 + [5.0] * 10))
    here = resumed(loader([2.0] * 20), there)
    assert next(here)[1].tolist() == next(there)[1].tolist()


def test_what_was_there_before_the_first_step_is_not_looked_at() -> None:
    anew = begun(DataLoader(BASE, batch_size=4)).position()["made_of"][1]
    assert not [name for name in anew if name.startswith("dataset.")]
