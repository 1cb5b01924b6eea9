"""A tensor that is kept over a step with its graph is refused as the next one begins."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.kept import Kept
from trainmover.errors import UserError
from trainmover.ids import Step
from trainmover.state.tracked import Tracked
from trainmover.worker.step.graphs import Graphs


class Meter:
    """A tracked object with a state_dict of its own."""

    def __init__(self) -> None:
        self.last = torch.zeros(1)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": [self.last]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.last = state["seen"][0]


def refuse(tracked: Tracked) -> None:
    Graphs(tracked).check(Step(3), tracked.small_states())


def of_a_step(size: int) -> Tensor:
    return torch.ones(size, requires_grad=True) * 2


@pytest.mark.parametrize("size", [2, 100_000])
def test_a_kept_tensor_with_a_graph_is_refused(size: int) -> None:
    """However large it is."""
    memory = SimpleNamespace(count=1, hidden=torch.zeros(size))
    tracked = Tracked()
    tracked.add("memory", Kept(memory, ("count", "hidden")))
    refuse(tracked)
    memory.hidden = of_a_step(size)
    with pytest.raises(UserError, match=r"`hidden` of a SimpleNamespace, tracked as `memory`"):
        refuse(tracked)
    memory.hidden = memory.hidden.detach()
    refuse(tracked)


def test_so_is_one_in_the_state_of_a_tracked_object() -> None:
    meter, tracked = Meter(), Tracked()
    refuse(tracked)
    tracked.add("meter", meter)
    refuse(tracked)
    meter.last = of_a_step(1)
    with pytest.raises(UserError, match=r"`seen\[0\]` of a Meter"):
        refuse(tracked)


def test_a_tensor_that_is_trained_itself_has_none() -> None:
    memory = SimpleNamespace(hidden=torch.zeros(2, requires_grad=True))
    tracked = Tracked()
    tracked.add("memory", Kept(memory, ("hidden",)))
    refuse(tracked)


def test_a_module_keeps_what_is_trained() -> None:
    tracked = Tracked()
    tracked.add("model", torch.nn.Linear(1, 1))
    tracked.add("meter", Meter())
    graphs = Graphs(tracked)
    assert [name for name, _ in graphs.kept] == ["meter"]
    tracked.add("other", Meter())
    assert graphs.of is not tracked.modes, "another may be looked for"
