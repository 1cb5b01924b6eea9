"""What is known of buffers and layers that come while a script runs; compiled code stays whole."""

import gc

import pytest
import torch
from torch import Tensor, nn

from trainmover.state.kinds.modules.registered import Registered


@pytest.fixture(scope="module")
def known() -> Registered:
    known = Registered()
    known.watch()
    return known


def test_a_buffer_is_known_as_it_was_registered(known: Registered) -> None:
    part, value = nn.Linear(1, 1), torch.zeros(2)
    part.register_buffer("late", value)
    assert known.buffer(part, "late") == (value, 0)
    part.late += 1
    assert known.buffer(part, "late") == (value, 0)
    assert known.buffer(part, "other") is None
    assert known.buffer(nn.Linear(1, 1), "late") is None


def test_one_that_was_exchanged_and_is_gone_is_another(known: Registered) -> None:
    part = nn.Linear(1, 1)
    part.register_buffer("late", torch.zeros(2))
    count = known.buffers
    part.late = torch.ones(2)
    gc.collect()
    assert known.buffer(part, "late") == (None, -2)
    assert known.buffers == count, "it is no other one"


def test_it_keeps_nothing_alive(known: Registered) -> None:
    part = nn.Linear(1, 1)
    part.register_buffer("late", torch.zeros(2))
    gone = [module for module, *_ in known._buffers]
    del part
    gc.collect()
    assert gone[-1]() is None


class Counting(nn.Module):
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.seen + 1
        found: Tensor = self.inner(x) * self.seen
        return found


@pytest.mark.usefixtures("known")
def test_compiled_code_that_sets_a_buffer_is_one_graph() -> None:
    model = Counting()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    for _ in range(3):
        compiled(torch.ones(1, 2))
    assert float(model.seen) == 3.0
