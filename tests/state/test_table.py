"""The table of state has no empty cell, and does what it says for what lies beside an object."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainmover
from trainmover.state.kinds.values import Attributes
from trainmover.state.moments import PARTS, TABLE, Moment
from trainmover.state.proof.fingerprint import fingerprint
from trainmover.state.tracked import Tracked
from trainmover.worker.step.before import Before

ROOT = Path(trainmover.__file__).parent
KINDS = [(kind, moment) for kind in TABLE for moment in Moment]


class Net(nn.Module):
    """Has something of each kind that a module alone can have."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("cache", torch.zeros(2), persistent=False)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.cache.add_(1)
        y: torch.Tensor = self.norm(self.inner(x))
        return y


def net_of(tracked: Tracked) -> Net:
    net = tracked["net"]
    assert isinstance(net, Net)
    return net


def build() -> Tracked:
    net = Net()
    tracked = Tracked(lambda owner: ["calls"] if isinstance(owner, Net) else [])
    tracked.add("net", net)
    tracked.add("optimizer", torch.optim.SGD(net.parameters(), lr=0.1))
    for gradients in tracked.gradients:  # A step that leaves gradients, and is added to.
        for _ in range(2):
            gradients.begin_step()
            net(torch.ones(4, 3)).square().sum().backward()
            gradients.at_gate()
            gradients.end_step()
    tracked.small_states()
    return tracked


CHANGES: dict[str, Callable[[Net], Any]] = {
    "modes": lambda net: net.eval(),
    "buffers": lambda net: net.norm.running_mean.add_(1),  # type: ignore[union-attr, operator]
    "unsaved": lambda net: net.cache.add_(5),  # type: ignore[operator]
    "attributes": lambda net: setattr(net, "calls", 41),
    "gradients": lambda net: net.norm.bias.grad.mul_(3),  # type: ignore[union-attr]
}
"""How each changes; the others need groups, and have tests of their own: see `ELSEWHERE`."""
ELSEWHERE = {
    "hooks": "kinds/test_hooks.py",
    "settings": "kinds/test_settings.py",
    "stages": "kinds/test_stages.py",
    "unsharded": "kinds/test_unsharded.py",
}


@pytest.mark.parametrize(("kind", "moment"), KINDS, ids=lambda value: str(value))
def test_no_cell_is_empty(kind: str, moment: Moment) -> None:
    cell = TABLE[kind][moment]
    assert (ROOT / cell.by).is_file()


def test_every_part_is_tried_out() -> None:
    assert CHANGES.keys() | ELSEWHERE.keys() == PARTS.keys()
    assert all((Path(__file__).parent / name).is_file() for name in ELSEWHERE.values())


def state_of(tracked: Tracked, kind: str) -> bytes:
    return tracked.small_states()[f"net.{kind}"]


@pytest.mark.parametrize("kind", CHANGES)
def test_a_retry_puts_it_back(kind: str) -> None:
    tracked = build()
    [gradients] = tracked.gradients
    kept = state_of(tracked, kind)
    gradients.begin_step()
    before = Before.take(tracked, (), {})
    with torch.no_grad():
        CHANGES[kind](net_of(tracked))
    assert state_of(tracked, kind) != kept
    assert gradients.put_back() == ""
    before.restore(tracked)
    assert state_of(tracked, kind) == kept


@pytest.mark.parametrize("kind", CHANGES)
def test_it_goes_with_the_record(kind: str) -> None:
    source, joiner = build(), build()
    with torch.no_grad():
        CHANGES[kind](net_of(source))
    assert state_of(joiner, kind) != state_of(source, kind)
    joiner.load_small(source.small_states())
    assert state_of(joiner, kind) == state_of(source, kind)


@pytest.mark.parametrize("kind", CHANGES)
def test_a_round_sees_it(kind: str) -> None:
    source, other = build(), build()
    assert fingerprint(source).hashes == fingerprint(other).hashes
    with torch.no_grad():
        CHANGES[kind](net_of(source))
    assert fingerprint(source).rest != fingerprint(other).rest


def test_attributes_of_an_object_are_a_small_object() -> None:
    tracked = Tracked()
    tracked.add("kept", Attributes(Net(), ("calls",)))
    assert tracked.small_names() == ["kept"]


def test_a_buffer_of_another_form_in_its_place_is_sent_as_it_is() -> None:
    """Whatever number Python gives the new tensor."""
    net = Net()
    tracked = Tracked()
    tracked.add("net", net)
    for size in (2, 5, 3):
        net.norm.running_mean = torch.arange(float(size))
        states = tracked.small_states()
        twin = Net()
        twin.norm.running_mean = torch.zeros(size)
        others = Tracked()
        others.add("net", twin)
        others.load_small({"net.buffers": states["net.buffers"]})
        assert torch.equal(twin.norm.running_mean, torch.arange(float(size)))
