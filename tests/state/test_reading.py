"""An object whose state_dict() has an effect is refused, as it is read first; others are not."""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from trainmover.errors import UserError
from trainmover.state.reading import is_own
from trainmover.state.tracked import Tracked


class Own:
    """Of the script's: its state is read by `read`."""

    def __init__(self, read: Callable[["Own"], Any]) -> None:
        self.model = nn.Linear(2, 2)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.saves, self.saved_s, self.read = 0, 0.0, read

    def state_dict(self) -> dict[str, Any]:
        self.read(self)
        return {"saves": self.saves}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.saves = state["saves"]


class Holder(Own):
    """What it holds lies in an object of its own."""

    def __init__(self, read: Callable[["Own"], Any]) -> None:
        super().__init__(read)
        self.inner = Own(read)


def begin_state(own: Own) -> None:
    for parameter in own.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    own.optimizer.step()
    own.optimizer.zero_grad()


def set_gradient(own: Own) -> None:
    own.model.weight.grad = torch.ones(2, 2)


def write(own: Own) -> None:
    with torch.no_grad():
        own.model.weight.mul_(1.0)


EFFECTS: dict[str, tuple[Callable[[Own], Any], str]] = {
    "an optimizer's state": (begin_state, "Linear and the state of Adam"),
    "a gradient": (set_gradient, "the state of Linear"),
    "a parameter": (write, "the state of Linear"),
    "one inside": (lambda own: write(getattr(own, "inner", own)), "the state of Linear"),
    "torch's generator": (lambda own: torch.rand(1), "generators of random numbers"),
    "python's generator": (lambda own: random.random(), "generators of random numbers"),
}


@pytest.mark.parametrize("effect", EFFECTS)
def test_an_effect_is_refused(effect: str) -> None:
    read, said = EFFECTS[effect]
    tracked = Tracked()
    tracked.add("app", Holder(read))
    with pytest.raises(UserError, match=said) as raised:
        tracked.small_states()
    assert "test_reading.py line 2" in raised.value.happened
    assert "model=app.model, optimizer=app.optimizer" in raised.value.do


def test_of_a_tracked_object_too() -> None:
    tracked, model = Tracked(), nn.Linear(2, 2)
    tracked.add("model", model)
    tracked.add("app", Own(lambda _: model.bias.detach().add_(1)))
    with pytest.raises(UserError, match="the state of Linear"):
        tracked.small_states()


def stamp(own: Own) -> None:
    own.saves, own.saved_s = own.saves + 1, time.monotonic()


def look(own: Own) -> None:
    own.model.state_dict()
    own.optimizer.state_dict()


@pytest.mark.parametrize("read", [look, stamp])
def test_what_has_none_is_not(read: Callable[[Own], Any]) -> None:
    tracked = Tracked()
    tracked.add("app", Own(read))
    assert tracked.small_states()
    assert tracked.small_states()["app"]


class Writing(nn.Linear):
    """A module that says what its state is."""

    def get_extra_state(self) -> int:
        with torch.no_grad():
            self.weight.clamp_(max=1.0)
        return 1

    def set_extra_state(self, state: int) -> None:
        pass


class Drawing(torch.optim.SGD):
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"seed": random.random()}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: nn.Sequential(Writing(2, 2)), "the state of Sequential"),
        (lambda: Drawing([nn.Parameter(torch.ones(1))], lr=1.0), "generators of random numbers"),
    ],
)
def test_of_modules_and_optimizers_too(made: Callable[[], Any], said: str) -> None:
    tracked = Tracked()
    tracked.add("it", made())
    with pytest.raises(UserError, match=said) as raised:
        tracked.small_states()
    assert "Let it only give its state" in raised.value.do


def test_what_torch_says_itself_is_not_read_for_this() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert not is_own(model)
    assert not is_own(torch.optim.AdamW(model.parameters()))
    assert is_own(Own(stamp))
