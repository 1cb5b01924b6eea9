"""The table of state has no empty cell, and does what it says for what lies beside an object."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainmover
from tests.again import Again
from trainmover.state.kinds.generators import KeptGenerator
from trainmover.state.moments import PARTS, TABLE, Do, Moment
from trainmover.state.proof.fingerprint import fingerprint
from trainmover.state.tracked import Tracked

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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.add_(1)
        y: torch.Tensor = self.norm(self.inner(x))
        return y


def net_of(tracked: Tracked) -> Net:
    net = tracked["net"]
    assert isinstance(net, Net)
    return net


def build() -> Tracked:
    net = Net()
    tracked = Tracked()
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
    "gradients": lambda net: net.norm.bias.grad.mul_(3),  # type: ignore[union-attr]
}
"""How each changes; the others need groups, and have tests of their own: see `ELSEWHERE`."""
ELSEWHERE = {
    "attributes": "kinds/test_scripted.py",
    "hooks": "kinds/parallel/test_hooks.py",
    "large_buffers": "kinds/modules/test_large_buffers.py",
    "settings": "kinds/optimizers/test_settings.py",
    "stages": "kinds/optimizers/test_stages.py",
    "unsharded": "kinds/parallel/test_unsharded.py",
    "used": "kinds/parallel/test_used.py",
}


@pytest.mark.parametrize(("kind", "moment"), KINDS, ids=lambda value: str(value))
def test_no_cell_is_empty(kind: str, moment: Moment) -> None:
    cell = TABLE[kind][moment]
    assert (ROOT / cell.by).is_file()


def test_every_row_is_tried_out() -> None:
    """A row that goes away is missed, too."""
    assert CHANGES.keys() | ELSEWHERE.keys() == PARTS.keys()
    assert OBJECTS.keys() | OF_THE_RUN.keys() == TABLE.keys() - PARTS.keys()
    here = Path(__file__).parent
    assert all((here / name).is_file() for name in ELSEWHERE.values())
    assert all((here.parent / name).is_file() for name in OF_THE_RUN.values())


class Kept:
    """An object of a script's. size: numbers that it keeps."""

    def __init__(self, size: int) -> None:
        self.numbers = torch.zeros(size)

    def state_dict(self) -> dict[str, Any]:
        return {"numbers": self.numbers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.numbers.copy_(state["numbers"])


def _draw(generator: KeptGenerator) -> None:
    assert isinstance(generator.generator, torch.Generator)
    torch.rand(3, generator=generator.generator)


@torch.no_grad()
def _momentum(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            state.setdefault("momentum_buffer", torch.zeros_like(parameter)).add_(1)


OBJECTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "parameters": ("net", lambda net: net.norm.bias.add_(1)),
    "optimizers": ("optimizer", _momentum),
    "bulk objects": ("large", lambda kept: kept.numbers.add_(1)),
    "small objects": ("small", lambda kept: kept.numbers.add_(1)),
    "tracked generators": ("generator", _draw),
}
"""Rows of tracked objects: the name of one in `with_objects`, and how it changes."""
OF_THE_RUN = {
    "global generators": "state/test_rng.py",
    "place in the data": "worker/data/test_draws.py",
    "batches": "worker/data/test_batch_hash.py",
    "the script's variables": "worker/keep/test_script_graph.py",
    "groups": "comm/test_comm_groups.py",
}
"""Rows of what no object has, and who tries them out."""


def with_objects() -> Tracked:
    tracked = build()
    tracked.add("large", Kept(100_000))
    tracked.add("small", Kept(2))
    tracked.add("generator", torch.Generator().manual_seed(0))
    OBJECTS["optimizers"][1](tracked["optimizer"])
    tracked.small_states()
    return tracked


@pytest.mark.parametrize("kind", OBJECTS)
def test_an_object_goes_with_the_record_if_the_table_says_so(kind: str) -> None:
    name, change = OBJECTS[kind]
    source, joiner = with_objects(), with_objects()
    with torch.no_grad():
        change(source[name])
    assert (name in source.small_states()) == (TABLE[kind][Moment.RECORD].do is Do.SEND)
    if name in joiner.small_states():
        assert source.small_states()[name] != joiner.small_states()[name]
        joiner.load_small(source.small_states())
        assert source.small_states()[name] == joiner.small_states()[name]


@pytest.mark.parametrize("kind", OBJECTS)
def test_an_object_is_put_back_by_a_retry_if_the_table_says_so(kind: str) -> None:
    name, change = OBJECTS[kind]
    tracked = with_objects()
    kept = fingerprint(tracked)
    before = Again(tracked)
    with torch.no_grad():
        change(tracked[name])
    assert fingerprint(tracked).hashes != kept.hashes
    assert before.put_back() == ""
    is_put_back = fingerprint(tracked).hashes == kept.hashes
    assert is_put_back == (TABLE[kind][Moment.RETRY].do is Do.COPY)


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_round_sees_an_object(kind: str) -> None:
    name, change = OBJECTS[kind]
    source, other = with_objects(), with_objects()
    assert fingerprint(source).hashes == fingerprint(other).hashes
    with torch.no_grad():
        change(source[name])
    assert fingerprint(source).hashes != fingerprint(other).hashes
    assert TABLE[kind][Moment.COMPARE].do is Do.HASH


def state_of(tracked: Tracked, kind: str) -> bytes:
    return tracked.small_states()[f"net.{kind}"]


@pytest.mark.parametrize("kind", CHANGES)
def test_a_retry_puts_it_back(kind: str) -> None:
    tracked = build()
    [gradients] = tracked.gradients
    kept = state_of(tracked, kind)
    gradients.begin_step()
    before = Again(tracked)
    with torch.no_grad():
        CHANGES[kind](net_of(tracked))
    assert state_of(tracked, kind) != kept
    assert gradients.put_back() == ""
    assert before.put_back() == ""
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
