"""A pass over a loader goes on where another process stood in it, and gives its batches again."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.graph.carrying import carried, graph_of, restored
from trainmover.worker.auto import loaders
from trainmover.worker.auto.loaders import LoaderIterator


class Noisy(Dataset[Tensor]):
    """Samples that draw from torch's own numbers."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Tensor:
        return index + torch.rand(1)


def loader_of(dataset: Any, **others: Any) -> "DataLoader[Any]":
    return DataLoader(dataset, 2, shuffle=True, **others)


def rows(batches: Any) -> list[Any]:
    return [one.tolist() if isinstance(one, Tensor) else one[0].tolist() for one in batches]


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    loaders.switch(on=False)


@pytest.mark.parametrize("workers", [0, 1])
def test_another_process_goes_on_at_the_same_place(workers: int) -> None:
    data = TensorDataset(torch.arange(12))
    torch.manual_seed(1)
    theirs = LoaderIterator(loader_of(data, num_workers=workers))
    first = [next(theirs) for _ in range(3)]
    graph = carried(graph_of([theirs]))
    torch.manual_seed(99)
    mine = LoaderIterator(loader_of(data, num_workers=workers))
    if workers:
        next(mine)
    assert restored(graph, [mine]) == []
    loaders.settle()
    assert rows(mine) == rows(theirs)
    assert len(rows(first)) == 3


def test_the_pass_begins_anew_over_the_loader_that_the_other_had() -> None:
    data = TensorDataset(torch.arange(12))
    pair = [loader_of(data), DataLoader(data, 3)]
    graph = carried(graph_of([pair, LoaderIterator(pair[1])]))
    pair = [loader_of(data), DataLoader(data, 3)]
    mine = LoaderIterator(pair[0])
    assert restored(graph, [pair, mine]) == []
    assert mine.source is pair[1]
    assert rows(mine)[0] == [0, 1, 2]


def test_batches_of_a_step_are_given_again_with_the_numbers_they_had() -> None:
    torch.manual_seed(1)
    batches = LoaderIterator(loader_of(Noisy()))
    next(batches)
    loaders.forget_given()
    graph = graph_of([batches])
    given = [next(batches), next(batches), torch.rand(1)]
    assert restored(graph, [batches]) == []
    torch.manual_seed(5)
    again = [next(batches), next(batches), torch.rand(1)]
    assert all(map(torch.equal, again, given))
    assert again[0] is given[0]


def test_a_loader_whose_place_cannot_be_told_is_named() -> None:
    told: list[str] = []
    loaders.wrap_loaders()
    loaders.switch(on=True, tell=told.append)
    data = TensorDataset(torch.arange(4))
    iterator = iter(DataLoader(data, num_workers=2, in_order=False))
    assert not isinstance(iterator, LoaderIterator)
    assert told == ["with in_order=False the order of its batches is left to chance"]
    del iterator


def test_only_passes_of_scripts_that_are_served_are_such() -> None:
    loaders.wrap_loaders()
    loader = DataLoader(TensorDataset(torch.arange(4)))
    assert not isinstance(iter(loader), LoaderIterator)
    loaders.switch(on=True)
    assert isinstance(iter(loader), LoaderIterator)
    with torch.no_grad():
        assert not isinstance(iter(loader), LoaderIterator)
    assert len(rows(loader)) == 4
