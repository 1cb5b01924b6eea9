"""What a script keeps may be what an optimizer works with; then it is not to be two elsewhere."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from trainmover.errors import StateMismatch
from trainmover.state.common_memory import check, in_common
from trainmover.state.items import HasState
from trainmover.state.kinds.values import Attributes

Rolled = Callable[[dict[str, Any]], dict[str, Any]]


class Best:
    state: Any = None


def rolled_back(given: Rolled) -> list[tuple[str, HasState]]:
    """A script keeps its optimizer's state, and goes back to it. given: what of it"""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    best = Best()
    best.state = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(given(best.state))
    kept = Attributes(best, ("state",))
    return [("model", model), ("optimizer", optimizer), ("best", kept)]


def test_a_state_that_was_loaded_is_the_very_one_that_is_kept() -> None:
    theirs, mine = (
        in_common(rolled_back(lambda state: state)),
        in_common(rolled_back(copy.deepcopy)),
    )
    assert theirs == [["best", "optimizer"]]
    assert mine == []
    with pytest.raises(StateMismatch, match="`best` and `optimizer` have memory in common"):
        check(theirs, mine)
    check(theirs, theirs)
    check(mine, theirs)


def test_modules_and_optimizers_alone_are_not_looked_at() -> None:
    model = nn.Linear(3, 2)
    assert in_common([("model", model), ("same", model)]) == []
    kept = Attributes(Best(), ("state",))
    assert in_common([("model", model), ("same", model), ("best", kept)]) == [["model", "same"]]
