"""The state of torchdata's loader, made of its counters, is the one that it gives itself."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, RandomSampler, SequentialSampler
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

from trainmover.worker.data.counted import Counted

COUNT = 10


class Counting(Dataset[int]):
    """With a state of its own."""

    read = 0

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> int:
        self.read += 1
        return index

    def state_dict(self) -> dict[str, Any]:
        return {"read": self.read}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.read = state["read"]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(COUNT))


def loaders() -> dict[str, StatefulDataLoader[Any]]:
    data = list(range(COUNT))
    seeded = torch.Generator().manual_seed(1)
    distributed: Any = StatefulDistributedSampler(data, 1, 0)  # type: ignore[arg-type]
    return {
        "in order": StatefulDataLoader(data, 2, sampler=SequentialSampler(data)),
        "last one smaller": StatefulDataLoader(data, 3, sampler=SequentialSampler(data)),
        "torch's sampler": StatefulDataLoader(data, 2, sampler=RandomSampler(data)),
        "shuffled": StatefulDataLoader(data, 2, shuffle=True, generator=seeded),
        "sampler with a state": StatefulDataLoader(data, 2, sampler=distributed),
        "dataset with a state": StatefulDataLoader(Counting(), 2),
        "stream": StatefulDataLoader(Stream(), 2),
        "single samples": StatefulDataLoader(data, None),
        "in processes": StatefulDataLoader(data, 2, num_workers=1),
    }


@pytest.mark.parametrize("name", loaders())
def test_it_is_the_one_that_the_loader_gives(name: str) -> None:
    loader = loaders()[name]
    for _ in range(2):
        passing, counted = iter(loader), None
        for _ in range(COUNT // 3):
            next(passing)
            asked = loader.state_dict()
            counted = counted or Counted.of(loader, asked)
            assert counted is None or counted.state(loader) == asked
        assert (counted is None) == (
            name not in ("in order", "last one smaller", "torch's sampler")
        )
        for _ in passing:
            pass
        assert counted is None or counted.state(loader) in (None, loader.state_dict())


def test_another_pass_is_not_told_by_the_counters_of_the_one_before() -> None:
    loader = loaders()["in order"]
    next(iter(loader))
    counted = Counted.of(loader, loader.state_dict())
    assert counted is not None
    next(iter(loader))
    assert counted.state(loader) is None
