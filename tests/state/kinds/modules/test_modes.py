"""The flags of modules are asked at every step, and encoded when one is another."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainmover.state import encode
from trainmover.state.kinds.modules.modes import Modes


@pytest.fixture
def wrapper(known_wrappers: None) -> DistributedDataParallel:
    """One that is known, around a model of two layers."""
    return DistributedDataParallel(nn.Sequential(nn.Linear(2, 2), nn.Dropout()))


CHANGES: list[Callable[[DistributedDataParallel], object]] = [
    lambda wrapper: wrapper.eval(),
    lambda wrapper: wrapper.module[1].eval(),
    lambda wrapper: setattr(wrapper.module[1], "training", False),
    lambda wrapper: wrapper.module[0].bias.requires_grad_(False),
    lambda wrapper: setattr(wrapper, "require_forward_param_sync", False),
    lambda wrapper: setattr(wrapper, "require_backward_grad_sync", False),
]


@pytest.mark.parametrize("change", CHANGES)
def test_every_flag_that_is_set_shows_at_once(
    wrapper: DistributedDataParallel, change: Callable[[DistributedDataParallel], object]
) -> None:
    known = Modes(wrapper)
    first = known.encoded()
    assert known.encoded() is first
    kept = change(wrapper)
    assert known.encoded() != first
    assert known.encoded() == encode.encode(known.state_dict())
    del kept


def test_only_the_newest_wrapper_of_what_is_tracked_counts(
    wrapper: DistributedDataParallel,
) -> None:
    """One of an earlier run is there until it is collected, and so is one that was replaced."""
    of_another = DistributedDataParallel(nn.Linear(1, 1))
    modes_of = Modes(wrapper.module)
    alone = modes_of.state_dict()
    assert len(alone["sync"]) == 1
    again = DistributedDataParallel(wrapper.module)
    assert len(modes_of.state_dict()["sync"]) == 1
    modes_of.load_state_dict(alone | {"sync": [[False, True]]})
    assert not again.require_forward_param_sync
    assert wrapper.require_forward_param_sync
    assert of_another.require_forward_param_sync


def test_wrappers_of_parts_are_told_apart_by_the_order_they_were_made_in(
    wrapper: DistributedDataParallel,
) -> None:
    whole = nn.ModuleList([nn.Linear(2, 2), nn.Linear(3, 3)])
    second = DistributedDataParallel(whole[1])
    first = DistributedDataParallel(whole[0])
    modes_of = Modes(whole)
    modes_of.load_state_dict(modes_of.state_dict() | {"sync": [[False, True], [True, True]]})
    assert not second.require_forward_param_sync
    assert first.require_forward_param_sync
    assert wrapper.require_forward_param_sync


def test_the_buckets_of_a_wrapper_show_and_are_given(wrapper: DistributedDataParallel) -> None:
    known = Modes(wrapper)
    first = known.encoded()
    wrapper(torch.ones(3, 2)).sum().backward()
    noted = known.encoded()
    assert noted != first
    wrapper(torch.ones(3, 2)).sum().backward()
    rebuilt = known.encoded()
    assert rebuilt not in (first, noted)
    for state in (first, noted, rebuilt):
        known.load_state_dict(encode.decode(state))
        assert known.encoded() == state


def test_a_wrapper_of_a_static_graph_is_named_until_it_knows_it(
    wrapper: DistributedDataParallel,
) -> None:
    assert Modes(wrapper).learning() == []
    static = DistributedDataParallel(nn.Linear(2, 2), static_graph=True)
    made = test_a_wrapper_of_a_static_graph_is_named_until_it_knows_it.__code__.co_firstlineno + 4
    assert Modes(static).learning() == [f"test_modes.py line {made}"]
    for _ in range(2):
        static(torch.ones(3, 2)).sum().backward()
    assert Modes(static).learning() == []
