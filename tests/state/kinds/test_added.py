"""A group that a script has added to an optimizer is added where its rank goes on."""

from typing import Any

import pytest
import torch
from torch import nn

from trainmover.errors import StateMismatch
from trainmover.state.tracked import Tracked


def build(seed: int) -> Tracked:
    torch.manual_seed(seed)
    model = nn.ModuleDict({"body": nn.Linear(3, 2), "head": nn.Linear(2, 1)})
    model["body"].requires_grad_(False)
    tracked = Tracked()
    tracked.add("model", model)
    tracked.add("optimizer", torch.optim.AdamW(model["head"].parameters(), lr=0.1))
    return tracked


def thaw(tracked: Tracked) -> None:
    model: Any = tracked["model"]
    optimizer: Any = tracked["optimizer"]
    model["body"].requires_grad_(True)
    optimizer.add_param_group({"params": model["body"].parameters(), "lr": 0.01})


def step(tracked: Tracked) -> None:
    model: Any = tracked["model"]
    optimizer: Any = tracked["optimizer"]
    model["head"](model["body"](torch.ones(1, 3))).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def move(source: Tracked, joiner: Tracked) -> None:
    header, tensors = source.bulk_header()
    targets = joiner.bulk_destinations(header)
    for target, tensor in zip(targets, tensors, strict=True):
        target.copy_(tensor)
    joiner.load_bulk_header(header, targets)
    joiner.load_small(source.small_states())


@pytest.mark.parametrize("joiner_thawed", [False, True])
def test_a_thawed_model_goes_on_as_the_source(*, joiner_thawed: bool) -> None:
    source, joiner = build(1), build(2)
    step(source)
    step(joiner)
    thaw(source)
    step(source)
    if joiner_thawed:
        thaw(joiner)
    move(source, joiner)
    assert joiner.digest() == source.digest()
    step(source)
    step(joiner)
    assert joiner.digest() == source.digest()


def test_a_part_that_froze_is_frozen_there_too() -> None:
    source, joiner = build(1), build(2)
    model: Any = source["model"]
    model["head"].bias.requires_grad_(False)
    move(source, joiner)
    there: Any = joiner["model"]
    assert [p.requires_grad for p in there.parameters()] == [False, False, True, False]


def test_a_parameter_of_no_tracked_module_is_told() -> None:
    source = build(1)
    optimizer: Any = source["optimizer"]
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    with pytest.raises(StateMismatch, match="belongs to no tracked module"):
        source.bulk_header()
