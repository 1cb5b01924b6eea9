"""Loaders whose batches would not come again: refused at once, or found out when they are drawn
again, never other numbers."""

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainmover.errors import StateMismatch, UserError
from trainmover.state.encode import decode, encode
from trainmover.worker.data.batches import Batches

DATA = TensorDataset(torch.arange(12.0))


def watched(loader: Any) -> Batches:
    batches = Batches(loader, None)
    batches.watch(lambda: 0)
    return batches


def resumed_after(count: int, make: Callable[[], Any]) -> None:
    source = watched(make())
    for _ in range(count):
        next(source)
        torch.rand(1)  # as a step may
    watched(make()).resume(decode(encode(source.position())))


class Prepared(DataLoader[Any]):
    """As Accelerate's loaders: around another one, one batch ahead, in step with other ranks."""

    def __init__(self, base: "DataLoader[Any]") -> None:
        self.base_dataloader = base

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base_dataloader, name)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        torch.distributed.broadcast(torch.get_rng_state(), 0)
        yield from self.base_dataloader


def test_a_prepared_loader_is_refused_with_what_to_do_instead() -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    for base in (DataLoader(DATA), stateful(DATA)):
        with pytest.raises(UserError, match="a Prepared of Accelerate draws one batch") as refused:
            Batches(Prepared(base), 1)
        assert "give job.batches the loader itself" in str(refused.value)


def test_a_loader_that_makes_collectives_is_refused_at_its_first_batch() -> None:
    begun = 3

    class Agreeing(DataLoader[Any]):
        def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
            nonlocal begun
            begun += 1
            yield from super().__iter__()

    batches = Batches(Agreeing(DATA), None)
    batches.watch(lambda: begun)
    with pytest.raises(UserError, match="makes collectives as a pass begins"):
        next(batches)


def test_a_loss_while_a_pass_begins_is_no_collective() -> None:
    for after in (None, 0):  # Groups drain meanwhile, or count anew.
        counts = iter([3, after])
        batches = Batches(DataLoader(DATA), None)
        batches.watch(lambda counts=counts: next(counts))  # type: ignore[misc]
        assert next(batches) is not None


class Chance:
    """Another one each time that it begins, without anything to see it by."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        chance = random.SystemRandom()
        for _ in range(5):
            yield torch.tensor(chance.random())


class Ahead:
    """Draws one batch ahead: what it draws with is not what stood before its fetch."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        batch = torch.rand(2)
        for _ in range(5):
            after = torch.rand(2)
            yield batch
            batch = after


@pytest.mark.parametrize("make", [Chance, Ahead])
def test_an_iterable_that_gives_others_the_next_time_is_found_out(make: Any) -> None:
    with pytest.raises(StateMismatch, match="does not give the batches again"):
        resumed_after(3, make)


def test_data_that_have_changed_are_found_out() -> None:
    def stream() -> list[torch.Tensor]:
        return list(torch.arange(6.0)) if fresh else [torch.tensor(9.0)] * 6

    fresh = True
    source = watched(stream())
    next(source), next(source)
    position = source.position()
    watched(stream()).resume(position)
    fresh = False
    with pytest.raises(StateMismatch, match="does not give the batches again"):
        watched(stream()).resume(position)


def test_a_loader_with_a_state_of_its_own_making_goes_on() -> None:
    """Its state need not be enough: the pass is begun again."""

    class Counting(DataLoader[Any]):
        seen = 0

        def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
            for number, batch in enumerate(super().__iter__()):
                if number >= self.seen:
                    self.seen += 1
                    yield batch
            self.seen = 0

        def state_dict(self) -> dict[str, int]:
            return {"seen": self.seen}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.seen = state["seen"]

    source = watched(Counting(DATA, batch_size=2))
    rest = [next(source) for _ in range(5)][3:]
    again, other = watched(Counting(DATA, batch_size=2)), watched(Counting(DATA, batch_size=2))
    for _ in range(3):
        next(other)
    for _ in range(2):
        next(again)
    again.resume(copy.deepcopy(other.position()))
    assert [torch.equal(next(again)[0], batch[0]) for batch in rest] == [True, True]
