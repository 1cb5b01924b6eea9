"""Buffers that are in no state_dict: those that change go with the record, constants do not."""

import pytest
import torch
from torch import Tensor, nn

from trainmover.errors import StateMismatch, UserError
from trainmover.state.kinds.modules import unsaved
from trainmover.state.kinds.modules.registered import registered
from trainmover.state.kinds.modules.unsaved import Unsaved
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


@pytest.fixture(scope="module")
def _watched() -> None:
    registered.watch()


@pytest.mark.usefixtures("_watched")
def test_one_that_is_registered_later_is_found_and_comes_to_who_has_none() -> None:
    source, joiner = Net(), Net()
    there, here = Unsaved(source), Unsaved(joiner)
    for _ in range(20):
        assert there.state_dict() == {}
    source.inner.register_buffer("later", torch.zeros(2), persistent=False)
    assert there.state_dict() == {}, "it may be a constant"
    source.inner.later += 1
    assert list(there.state_dict()) == ["inner.later"]
    here.load_state_dict(there.state_dict())
    assert torch.equal(joiner.inner.later, torch.ones(2))
    assert "inner.later" not in joiner.state_dict()
    assert list(here.state_dict()) == ["inner.later"]


@pytest.mark.usefixtures("_watched")
@pytest.mark.parametrize("change", ["in place", "another tensor", "from None"])
def test_one_that_changes_before_it_is_looked_at_is_no_constant(change: str) -> None:
    net = Net()
    own = Unsaved(net)
    net.register_buffer("later", None if change == "from None" else torch.zeros(2), False)
    if change == "in place":
        net.later += 1
    else:
        net.later = torch.ones(2)
    assert list(own.state_dict()) == ["later"]


@pytest.mark.usefixtures("_watched")
def test_a_layer_that_comes_later_brings_its_own() -> None:
    net = Net()
    own = Unsaved(net)
    net.more = Net()
    net.more.step(1.0)
    assert own.state_dict().keys() == {"more.count", "more.inner.cache", "more.late"}


@pytest.mark.usefixtures("_watched")
def test_one_that_is_taken_away_is_none() -> None:
    net = Net()
    own = Unsaved(net)
    net.count += 1
    assert list(own.state_dict()) == ["count"]
    del net.count
    assert own.state_dict() == {"count": None}


def test_where_no_such_layer_is_a_rank_with_one_cannot_be_taken() -> None:
    with pytest.raises(StateMismatch, match=r"`more\.count`"):
        Unsaved(Net()).load_state_dict({"more.count": torch.ones(())})


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


def test_one_of_another_dtype_comes_as_it_is() -> None:
    joiner = nn.Module()
    joiner.register_buffer("mask", torch.ones(3, dtype=torch.bool), persistent=False)
    Unsaved(joiner).load_state_dict({"mask": torch.full((3,), 0.5)})
    assert joiner.mask.tolist() == [0.5] * 3  # type: ignore[operator]


def test_memory_of_what_is_trained_is_not_written_to() -> None:
    joiner = nn.Linear(1, 2)
    nn.init.ones_(joiner.bias)
    joiner.register_buffer("anchor", joiner.bias.detach(), persistent=False)
    Unsaved(joiner).load_state_dict({"anchor": torch.zeros(2)})
    assert joiner.bias.tolist() == [1.0, 1.0]
    assert joiner.anchor.tolist() == [0.0, 0.0]  # type: ignore[operator]
