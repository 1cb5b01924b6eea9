"""What a script alters of samplers and datasets: a pass begins anew with what it began with."""

from collections.abc import Collection, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Sampler, Subset, WeightedRandomSampler

from trainmover.errors import StateMismatch
from trainmover.state import rng
from trainmover.state.encode import decode, encode
from trainmover.state.kinds.modules.attributes import ATTRIBUTE_BYTES_MAX
from trainmover.worker.data.altered import altered, put_back
from trainmover.worker.data.batches import Batches

ALTERED = {"weights", "width", "parts", "cache", "net"}


class Rows(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.width, self.cache = 2, {0: torch.zeros(2)}
        self.net = torch.nn.Linear(1, 1)

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, self.width])


class Parts(Sampler[int]):
    def __init__(self) -> None:
        self.parts = [3, 1]

    def __iter__(self) -> Iterator[int]:
        return iter(number for part in self.parts for number in range(part))


def stored(owner: object) -> Collection[str]:
    return vars(owner).keys() & ALTERED


def weighted() -> DataLoader[torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    sampler = WeightedRandomSampler(torch.ones(24), 12, generator=generator)
    return DataLoader(Rows(), 3, sampler=sampler)


def batches_of(loader: Any, passes: int | None = 1) -> Batches:
    batches = Batches(loader, passes)
    batches.watch(lambda: 0, stored)
    return batches


def weigh(loader: DataLoader[torch.Tensor], power: float) -> None:
    sampler: Any = loader.sampler
    sampler.weights = torch.arange(24).double() ** power


def test_a_pass_is_resumed_with_the_weights_it_began_with() -> None:
    loader, other = weighted(), weighted()
    weigh(loader, 3.0)
    batches = batches_of(loader)
    first = [next(batches) for _ in range(2)]
    position, state = encode(batches.position()), rng.capture()
    rest = list(batches)
    assert all(batch[:, 0].min() > 0 for batch in first)
    resumed = batches_of(other)
    resumed.resume(decode(position))
    rng.restore(state)
    assert all(map(torch.equal, resumed, rest))
    assert torch.equal(other.sampler.weights, loader.sampler.weights)  # type: ignore[attr-defined]


def test_what_was_altered_since_is_as_the_pass_began() -> None:
    """It is another there than on the rank, and so it is named, as any variable is."""
    loader, other = weighted(), weighted()
    weigh(loader, 3.0)
    batches = batches_of(loader)
    next(batches)
    loader.sampler.weights[:] = 7.0  # type: ignore[attr-defined]
    resumed = batches_of(other)
    resumed.resume(decode(encode(batches.position())))
    assert torch.equal(other.sampler.weights, torch.arange(24).double() ** 3)  # type: ignore[attr-defined]


def test_what_was_altered_and_cannot_be_given_is_named_where_batches_differ() -> None:
    size = ATTRIBUTE_BYTES_MAX // 8 + 1
    loaders = []
    for power in (3.0, 0.0):
        generator = torch.Generator().manual_seed(2)
        weights = torch.arange(size).double() ** power
        sampler = WeightedRandomSampler(weights, 12, generator=generator)
        loaders.append(DataLoader(range(size), 3, sampler=sampler))  # type: ignore[arg-type]
    batches = batches_of(loaders[0])
    next(batches)
    with pytest.raises(StateMismatch, match=r"the script alters sampler\.weights while"):
        batches_of(loaders[1]).resume(batches.position())


def test_samplers_and_datasets_inside_of_others_are_found() -> None:
    rows = Rows()
    loader = DataLoader(Subset(rows, range(4)), 2, sampler=Parts())
    values = altered(loader, stored)
    rows.width, loader.sampler.parts = 5, [1]  # type: ignore[attr-defined]
    put_back(loader, values)
    assert rows.width == 2
    assert loader.sampler.parts == [3, 1]  # type: ignore[attr-defined]


def test_caches_and_models_are_no_such_values() -> None:
    assert decode(altered(DataLoader(Rows(), 2), stored)).keys() == {"dataset"}
    assert list(decode(altered(DataLoader(Rows(), 2), stored))["dataset"]) == ["width"]


def test_what_an_object_has_from_its_class_only_is_not_given() -> None:
    loader = DataLoader(Rows(), 2)
    values = altered(loader, lambda owner: {"width", "__len__", "depth"})
    assert list(decode(values)["dataset"]) == ["width"]


def test_without_any_the_place_is_as_before() -> None:
    batches = Batches(weighted(), 1)
    batches.watch(lambda: 0, lambda owner: set())
    next(batches)
    assert "altered" not in batches.position()
