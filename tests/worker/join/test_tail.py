"""Lines behind the last step, run by who has taken a rank there."""

import pytest
import torch
from torch import nn

from trainmover.errors import StateMismatch
from trainmover.ids import Step
from trainmover.state.tracked import Tracked
from trainmover.worker.join.tail import Tail


def tracked() -> tuple[Tracked, nn.Linear]:
    model, found = nn.Linear(2, 2), Tracked()
    found.add("model", model)
    return found, model


def test_lines_that_leave_the_state_as_it_is_are_harmless() -> None:
    state, model = tracked()
    tail = Tail(Step(40), state, state.small_states())
    model(torch.ones(2)).sum().backward()
    tail.check()


def test_lines_that_change_what_another_rank_gave_are_named() -> None:
    state, model = tracked()
    tail = Tail(Step(40), state, state.small_states())
    with torch.no_grad():
        model.weight.mul_(0.5)
    with pytest.raises(StateMismatch, match=r"weight.* behind its last step 40"):
        tail.check()
