"""What cannot be put into another process is found before a rank depends on it."""

from typing import Any

import pytest
import torch
from torch import nn

from trainmover.errors import StateMismatch
from trainmover.state.rehearsal import rehearse
from trainmover.state.tracked import Tracked


class Own:
    """An object of a script, large or small."""

    def __init__(self, size: int) -> None:
        self.value = torch.ones(size)
        self.calls = 0

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value.clone(), "calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value.copy_(state["value"])
        self.calls = state["calls"]


class Restless(Own):
    def state_dict(self) -> dict[str, Any]:
        self.calls += 1
        return super().state_dict()


class Deaf(Own):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise NotImplementedError("ask me another day")


class Forgetful(Own):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value.copy_(state["values"])


def tracking(own: Own) -> Tracked:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    scaler = torch.amp.GradScaler("cpu")
    tracked = Tracked()
    for name, obj in {"m": model, "o": optimizer, "s": schedule, "g": scaler, "own": own}.items():
        tracked.add(name, obj)
    return tracked


@pytest.mark.parametrize("size", [3, 30_000], ids=["small", "large"])
def test_what_can_be_put_back_is_as_it_was(size: int) -> None:
    tracked = tracking(Own(size))
    before = tracked.digest()
    rehearse(tracked)
    assert tracked.digest() == before


@pytest.mark.parametrize("size", [3, 30_000], ids=["small", "large"])
@pytest.mark.parametrize(("kind", "why"), [(Deaf, "another day"), (Forgetful, "values")])
def test_who_does_not_take_back_what_he_gave_is_named(size: int, kind: type[Own], why: str) -> None:
    with pytest.raises(StateMismatch, match=f"`own` does not take back .*{why}"):
        rehearse(tracking(kind(size)))


def test_who_is_another_each_time_is_named_if_standbys_are_compared_by_it() -> None:
    rehearse(tracking(Restless(3)))
    with pytest.raises(StateMismatch, match="`own` gives another state each time"):
        rehearse(tracking(Restless(30_000)))
