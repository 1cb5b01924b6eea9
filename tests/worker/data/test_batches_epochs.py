"""The order of a sampler is that of the same loop without us; a resume goes on in that order."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, Sampler, TensorDataset

from trainmover.state.encode import decode, encode
from trainmover.worker.data.batches import Batches

DATA = TensorDataset(torch.arange(14))


def sampler() -> "DistributedSampler[Any]":
    return DistributedSampler(DATA, 2, 0, seed=3)


class Own(Sampler[int]):
    """Keeps its epoch under a name of its own, and wraps another sampler."""

    def __init__(self) -> None:
        self.inner = sampler()
        self.seed = 0

    def __iter__(self) -> Iterator[int]:
        return iter([(place * (self.seed % 3 + 1)) % 14 for place in self.inner])

    def __len__(self) -> int:
        return 7

    def set_epoch(self, epoch: int) -> None:
        self.seed = 2 * epoch
        self.inner.set_epoch(epoch + 1)


KINDS: list[Any] = [sampler, Own]


def loader(of: Any) -> "DataLoader[Any]":
    return DataLoader(DATA, batch_size=2, sampler=of)


def order(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch[0]]


def bare(epochs: list[int | None], make: Any) -> list[list[int]]:
    """As plain PyTorch gives it; None: set_epoch is not called."""
    its = make()
    passes = []
    for epoch in epochs:
        if epoch is not None:
            its.set_epoch(epoch)
        passes.append(order(loader(its)))
    return passes


def flat(passes: list[list[int]]) -> list[int]:
    return [number for one in passes for number in one]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("epochs", [[0, 1, 2], [None] * 3, [5, None, 2, 2], [None, 4, None]])
def test_with_a_call_for_each_pass_the_script_says_the_epoch(make: Any, epochs: Any) -> None:
    its = make()
    its_loader = loader(its)
    passes = []
    for epoch in epochs:
        if epoch is not None:
            its.set_epoch(epoch)
        passes.append(order(Batches(its_loader, 1)))
    assert passes == bare(epochs, make)
    assert passes[0] != passes[1] or epochs[1] is None


def test_many_passes_in_one_call_are_numbered_on_from_what_the_script_said() -> None:
    make, its = sampler, sampler()
    assert order(Batches(loader(its), 3)) == flat(bare([0, 1, 2], make))
    assert order(Batches(loader(its), 2)) == flat(bare([0, 1], make))
    its.set_epoch(7)
    assert order(Batches(loader(its), 2)) == flat(bare([7, 8], make))
    assert order(Batches(loader(its), 1)) == bare([7], make)[0]


def test_an_epoch_that_the_script_sets_between_passes_of_one_call_counts() -> None:
    its = sampler()
    batches = Batches(loader(its), 3)
    first = [next(batches) for _ in range(4)]
    its.set_epoch(9)
    assert order(first) + order(batches) == flat(bare([0, 9, 10], sampler))


@pytest.mark.parametrize("place", [0, 1, 4, 5, 8, 9])
@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("said", [None, 6])
def test_a_joiner_goes_on_in_the_same_order(place: int, make: Any, said: int | None) -> None:
    def begun() -> tuple[Any, Batches]:
        its = make()
        return its, Batches(loader(its), 3)

    its, source = begun()
    if said is not None:
        its.set_epoch(said)
    taken = [next(source) for _ in range(place)]
    position = decode(encode(source.position()))
    rest = order(source)
    for shadow_steps in (0, 3, 6):
        others, joiner = begun()
        for _ in range(shadow_steps):
            next(joiner)
        joiner.resume(position)
        assert order(joiner) == rest
        if make is sampler:
            others.set_epoch(4)  # A call of its own: the script's word counts again.
            assert order(Batches(loader(others), 1)) == bare([4], make)[0]
    assert len(order(taken)) + len(rest) == 21


def test_what_was_numbered_on_elsewhere_is_put_back_for_the_next_call() -> None:
    its, there = sampler(), sampler()
    source, joiner = Batches(loader(its), 3), Batches(loader(there), 3)
    for _ in range(9):
        next(source)
    joiner.resume(source.position())
    for end in (source, joiner):
        order(end)
    assert (
        order(Batches(loader(there), 1)) == order(Batches(loader(its), 1)) == bare([0], sampler)[0]
    )
