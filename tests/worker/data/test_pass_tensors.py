"""A pass begins again from the weights that its sampler had, and goes on with those it has."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from trainmover.worker.data.batches import Batches


def loader_of(weights: torch.Tensor) -> "DataLoader[tuple[torch.Tensor, ...]]":
    chance = torch.Generator().manual_seed(3)
    sampler = WeightedRandomSampler(weights, 12, generator=chance)
    return DataLoader(TensorDataset(torch.arange(20)), 2, sampler=sampler)


def rows(batches: Batches) -> list[list[int]]:
    return [batch[0].tolist() for batch in batches]


@pytest.mark.parametrize("are_replaced", [False, True])
def test_weights_that_change_within_a_pass(*, are_replaced: bool) -> None:
    theirs = loader_of(torch.ones(20))
    batches = Batches(theirs, 2)
    taken = [next(batches)[0].tolist() for _ in range(2)]
    sampler: Any = theirs.sampler
    if are_replaced:
        sampler.weights = torch.arange(20.0)
    else:
        sampler.weights[:] = torch.arange(20.0)
    weights = sampler.weights
    position = batches.position()
    mine = loader_of(weights.clone())
    other = Batches(mine, 2)
    other.resume(position)
    assert torch.equal(mine.sampler.weights, weights)
    assert other.position()["tensors"] == batches.position()["tensors"] == position["tensors"]
    assert rows(other) == rows(batches)
    assert len(taken) == 2


def test_a_position_has_none_where_none_have_changed() -> None:
    batches = Batches(loader_of(torch.ones(20)), 1)
    next(batches)
    assert "tensors" not in batches.position()
