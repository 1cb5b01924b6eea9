"""Buffers that are in no state_dict: those that change go with the record, constants do not."""

import pytest
import torch
from torch import Tensor, nn

from trainmover.errors import UserError
from trainmover.state.kinds import unsaved
from trainmover.state.kinds.unsaved import Unsaved
from trainmover.state.tracked import Tracked


class Net(nn.Module):
    """A constant, a counter, a cache that grows, and one that is made when it is first needed."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.register_buffer("mask", torch.ones(3), persistent=False)
        self.register_buffer("count", torch.zeros(()), persistent=False)
        self.inner.register_buffer("cache", torch.zeros(0, 2), persistent=False)
        self.register_buffer("late", None, persistent=False)

    def step(self, number: float) -> None:
        self.count += 1
        self.inner.cache = torch.cat([self.inner.cache, torch.full((1, 2), number)])
        if self.late is None:
            self.late = torch.full((2,), number)


def test_constants_stay_at_home() -> None:
    assert Unsaved(Net()).state_dict() == {}


def test_what_changes_travels_and_comes_in_its_place() -> None:
    source, joiner = Net(), Net()
    there, here = Tracked(), Tracked()
    there.add("model", source)
    here.add("model", joiner)
    for number in range(3):
        source.step(float(number))
    joiner.step(9.0)
    count = joiner.count
    here.load_small(there.small_states())
    assert joiner.count is count
    assert float(count) == 3.0
    assert torch.equal(joiner.inner.cache, source.inner.cache)
    assert torch.equal(joiner.late, torch.zeros(2))
    assert torch.equal(joiner.mask, torch.ones(3))


def test_a_buffer_that_is_not_there_yet_is_none_on_arrival() -> None:
    source, joiner = Net(), Net()
    joiner.step(1.0)
    here = Unsaved(joiner)
    here.load_state_dict({"late": None})
    assert joiner.late is None
    assert Unsaved(source).state_dict() == {}


@pytest.mark.parametrize("write", ["data", "numpy"])
def test_a_write_that_no_version_counts_is_seen_among_the_first_steps(write: str) -> None:
    net = Net()
    own = Unsaved(net)
    assert own.state_dict() == {}
    if write == "data":
        net.count.data += 1
    else:
        net.count.numpy()[...] = 1
    assert list(own.state_dict()) == ["count"]


def test_one_that_first_changes_long_after_is_seen() -> None:
    net = Net()
    own = Unsaved(net)
    for _ in range(100):
        assert own.state_dict() == {}
    net.count += 1
    assert list(own.state_dict()) == ["count"]


def large(net: Net) -> Tensor:
    return torch.zeros(unsaved.BYTES_MAX // 4 + 1)


def test_a_large_one_that_settles_in_the_first_steps_is_a_constant() -> None:
    net = Net()
    own = Unsaved(net)
    net.late = large(net)
    net.count += 1
    for _ in range(30):
        assert own.state_dict().keys() <= {"count"}
    net.count += 1
    assert own.state_dict().keys() == {"count"}


def test_a_large_one_that_goes_on_changing_is_refused_by_name() -> None:
    net = Net()
    own = Unsaved(net)
    net.late = large(net)
    for _ in range(30):
        own.state_dict()
    net.late[0] = 1.0
    with pytest.raises(UserError, match="`late` above all"):
        own.state_dict()
