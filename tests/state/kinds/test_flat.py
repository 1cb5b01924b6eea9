"""Buffers are read where they lie; whatever is done to one of them shows in what is read."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.again import Again
from trainmover.state.kinds.flat import Memory, unflatten
from trainmover.state.kinds.modules.buffers import Buffers
from trainmover.state.tracked import Tracked


class Model(nn.Module):
    """Buffers of several forms."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("square", torch.arange(9.0).reshape(3, 3))
        self.register_buffer("whole", torch.arange(6))
        self.register_buffer("empty", torch.zeros(0))


def by_numpy(model: Model) -> None:
    model.square.numpy()[1, 2] = 7


def by_another_name(model: Model) -> None:
    model.square.view(9)[3] = 8


def replaced(model: Model) -> None:
    model.square = model.square + 1


def replaced_by_a_view_of_itself(model: Model) -> None:
    model.square = model.square.t()


def other_memory(model: Model) -> None:
    model.square.data = torch.full((3, 3), 5.0)


def turned_in_its_memory(model: Model) -> None:
    model.square.data = model.square.data.t()


def shorter_in_its_memory(model: Model) -> None:
    model.square.data = model.square.data[:2]


def another_form_of_its_memory(model: Model) -> None:
    model.square.data = model.square.data.view(9)


def another_type_of_its_memory(model: Model) -> None:
    model.square.data = model.square.data.view(torch.int32)


def resized(model: Model) -> None:
    model.square.resize_(2000).fill_(3)


def shared_with_another(model: Model) -> None:
    model.norm.running_var = model.norm.running_mean


CHANGES: list[Callable[[Model], None]] = [
    lambda model: model.square.add_(1),
    lambda model: model.square.data.add_(1),
    lambda model: model.norm(torch.randn(5, 4)),
    lambda model: model.norm.reset_running_stats(),
    by_numpy,
    by_another_name,
    replaced,
    replaced_by_a_view_of_itself,
    other_memory,
    turned_in_its_memory,
    shorter_in_its_memory,
    another_form_of_its_memory,
    another_type_of_its_memory,
    resized,
    shared_with_another,
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_read_is_what_is_there(change: Callable[[Model], None]) -> None:
    model = Model()
    model.norm(torch.randn(5, 4))
    buffers = Buffers(model)
    for _ in range(2):  # The second time from where they lay the first time.
        buffers.state_dict()
    change(model)
    for _ in range(2):
        state = buffers.state_dict()
        read = dict(unflatten(state["fit"], state["data"]))
        live = buffers.live()
        assert read.keys() == live.keys()
        for name, value in live.items():
            assert read[name].dtype == value.dtype
            assert torch.equal(read[name], value), name


@pytest.mark.parametrize("change", CHANGES)
def test_a_retry_finds_what_was_there(change: Callable[[Model], None]) -> None:
    model = Model()
    tracked = Tracked()
    tracked.add("model", model)
    change(model)
    for _ in range(2):
        there = dict(model.named_buffers())
        expected = {name: value.clone() for name, value in there.items()}
        taken = Again(tracked)
        with torch.no_grad():
            for value in there.values():
                value.fill_(9)
        model.square = torch.zeros(3, 3)
        assert taken.put_back() == ""
        assert all(value is there[name] for name, value in model.named_buffers())
        assert all(torch.equal(there[name], value) for name, value in expected.items())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3, 3).t()[:2],
        torch.zeros(2, dtype=torch.complex64).conj(),
        torch.ones(2).to_sparse(),
        nn.Parameter(torch.ones(2)),
    ],
)
def test_what_cannot_be_read_where_it_lies_is_not(tensor: Tensor) -> None:
    memory = Memory()
    memory.note([tensor], [0])
    assert not memory.holds([tensor])


def test_the_order_of_the_bytes_is_the_one_asked_for() -> None:
    first, second = torch.tensor([1, 2], dtype=torch.uint8), torch.tensor([3], dtype=torch.uint8)
    memory = Memory()
    memory.note([first, second], [1, 0])
    assert memory.holds([first, second])
    assert not memory.holds([second, first])
    assert memory.read() == b"\3\1\2"
