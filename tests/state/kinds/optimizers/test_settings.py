"""What parameter groups are set to goes with the rank's own record."""

from collections import deque
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from trainmover.errors import StateMismatch
from trainmover.state import encode
from trainmover.state.kinds.optimizers.settings import Settings
from trainmover.state.tracked import Tracked


def build(**settings: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(nn.Linear(3, 1).parameters(), **settings)


def test_they_are_what_they_were() -> None:
    source, joiner = build(lr=0.1, betas=(0.8, 0.9)), build(lr=0.3)
    Settings(joiner).load_state_dict(encode.decode(Settings(source).encoded()))
    group = joiner.param_groups[0]
    assert (group["lr"], tuple(group["betas"])) == (0.1, (0.8, 0.9))
    assert len(group["params"]) == 2


@pytest.mark.parametrize(
    "value",
    [
        numpy.float64(0.5),
        numpy.float32(0.5),
        numpy.int64(3),
        numpy.array([0.5, 0.6]),
        {"warm": numpy.float64(0.5), "late": [1, 2]},
        deque([0.5, 0.6], maxlen=4),
        (numpy.float64(0.5), 2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers_of_numpy_and_collections_go_along(value: Any) -> None:
    source, joiner = build(lr=0.1), build(lr=0.1)
    source.param_groups[0]["rate"], joiner.param_groups[0]["rate"] = value, 0.1
    Settings(joiner).load_state_dict(encode.decode(Settings(source).encoded()))
    given = joiner.param_groups[0]["rate"]
    assert type(given) is type(value)
    assert str(given) == str(value)


@pytest.mark.parametrize(
    "value", [0.05, 1, True, None, "a word", (0.5, 0.6), numpy.float64(0.05), numpy.float32(0.05)]
)
def test_a_change_is_seen(value: object) -> None:
    optimizer = build(lr=1.0)
    settings = Settings(optimizer)
    before = settings.encoded()
    assert settings.encoded() is before
    optimizer.param_groups[0]["lr"] = value
    assert settings.encoded() != before


def test_a_list_that_changes_in_place_is_seen() -> None:
    optimizer = build()
    optimizer.param_groups[0]["bounds"] = bounds = [0.1, 0.2]
    settings = Settings(optimizer)
    before = settings.encoded()
    bounds[0] = 0.5
    assert settings.encoded() != before


def test_a_tensor_stays_in_its_place() -> None:
    source, joiner = build(lr=torch.tensor(0.1)), build(lr=torch.tensor(0.3))
    there = joiner.param_groups[0]["lr"]
    Settings(joiner).load_state_dict(encode.decode(Settings(source).encoded()))
    assert joiner.param_groups[0]["lr"] is there
    assert there.item() == torch.tensor(0.1).item()


def test_what_cannot_be_sent_is_left_where_it_is() -> None:
    optimizer = build()
    optimizer.param_groups[0]["rule"] = rule = print
    settings = Settings(optimizer)
    settings.load_state_dict(encode.decode(settings.encoded()))
    assert optimizer.param_groups[0]["rule"] is rule


def test_groups_that_are_missing_here_are_an_error() -> None:
    source, joiner = build(), build()
    source.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    with pytest.raises(StateMismatch, match="2 parameter groups of its AdamW optimizer"):
        Settings(joiner).load_state_dict(encode.decode(Settings(source).encoded()))


def test_others_are_given_the_state_as_it_was_at_the_fetch() -> None:
    """Whoever has come further has set a rate for its step already."""
    optimizer = build(lr=0.1)
    tracked = Tracked()
    tracked.add("optimizer", optimizer)
    small, digest = tracked.small_states(), tracked.replica_digest().whole
    optimizer.param_groups[0]["lr"] = 0.05
    assert tracked.replica_digest().whole != digest
    with tracked.optimizers_as(small):
        assert tracked.replica_digest().whole == digest
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_a_tensor_that_is_given_to_others_keeps_the_value_that_it_was_given_with() -> None:
    optimizer = build(lr=torch.tensor(0.1), betas=(torch.tensor(0.8), torch.tensor(0.9)))
    rate, (first, _) = optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["betas"]
    tracked = Tracked()
    tracked.add("optimizer", optimizer)
    small = tracked.small_states()
    rate.mul_(0.5)
    first.mul_(0.5)
    with tracked.optimizers_as(small):
        header, tensors = tracked.bulk_header()
        told = tracked.replica_digest().whole
    assert optimizer.param_groups[0]["lr"] is rate
    assert optimizer.param_groups[0]["betas"][0] is first
    assert (rate.item(), first.item()) == pytest.approx((0.05, 0.4))
    joiner = Tracked()
    joiner.add(
        "optimizer", build(lr=torch.tensor(7.0), betas=(torch.zeros(()), torch.ones(()) / 2))
    )
    places = joiner.bulk_destinations(header)
    for place, tensor in zip(places, tensors, strict=True):
        place.copy_(tensor)
    joiner.load_bulk_header(header, places)
    assert joiner.replica_digest().whole == told


def test_settings_that_were_not_there_yet_are_gone_again() -> None:
    optimizer = build(lr=0.1)
    state = Settings(optimizer).state_dict()
    state["groups"][0]["extra"] = 5
    with Settings(optimizer).shown_as(state):
        assert optimizer.param_groups[0]["extra"] == 5
    assert "extra" not in optimizer.param_groups[0]


class Bare(torch.optim.Optimizer):
    """Has no settings at all."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})


def test_groups_without_settings_are_state_too() -> None:
    optimizer = Bare(nn.Linear(3, 1).parameters())
    settings = Settings(optimizer)
    one = settings.encoded()
    assert encode.decode(one) == {"groups": [{}]}
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    assert encode.decode(settings.encoded()) == {"groups": [{}, {}]}


def test_tensors_in_a_tuple_that_change_in_place_are_seen() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    rates = torch.ones(1)
    optimizer.param_groups[0]["rates"] = (rates, 2.0)
    settings = Settings(optimizer)
    before = settings.encoded()
    assert settings.encoded() == before
    rates.add_(1.0)
    assert settings.encoded() != before


def two_groups() -> torch.optim.Optimizer:
    first, second = nn.Linear(3, 1).parameters()
    return torch.optim.AdamW([{"params": [first]}, {"params": [second]}])


def betas_of(optimizer: torch.optim.Optimizer) -> list[list[float]]:
    return [group["betas"] for group in optimizer.param_groups]


def set_betas(optimizer: torch.optim.Optimizer, *, one: bool, value: float) -> list[float]:
    betas = [value, 0.99]
    for group in optimizer.param_groups:
        group["betas"] = betas if one else [*betas]
    return betas


@pytest.mark.parametrize("theirs", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_a_list_that_is_one_for_all_groups_is_one_where_they_are_set_so(
    own: bool, theirs: bool
) -> None:
    source, joiner = two_groups(), two_groups()
    set_betas(source, one=theirs, value=0.8)
    betas_of(source)[1][1] = 0.5
    betas = set_betas(joiner, one=own, value=0.9)
    Settings(joiner).load_state_dict(encode.decode(Settings(source).encoded()))
    assert betas_of(joiner) == betas_of(source)
    first, second = betas_of(joiner)
    assert (first is second) is theirs
    if own and theirs:
        assert betas is first  # The script's own goes on to be what the groups have.


def test_a_rate_for_all_groups_that_the_rank_has_put_apart_is_two() -> None:
    source, joiner = two_groups(), two_groups()
    rate = torch.tensor(0.3)
    for group in joiner.param_groups:
        group["lr"] = rate
    source.param_groups[0]["lr"], source.param_groups[1]["lr"] = (
        torch.tensor(0.1),
        torch.tensor(0.2),
    )
    Settings(joiner).load_state_dict(encode.decode(Settings(source).encoded()))
    assert [round(group["lr"].item(), 4) for group in joiner.param_groups] == [0.1, 0.2]


def test_a_rate_for_all_groups_stays_where_it_lies() -> None:
    source, joiner = two_groups(), two_groups()
    rates = [torch.tensor(0.3), torch.tensor(0.1)]
    for optimizer, rate in zip((joiner, source), rates, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
    Settings(joiner).load_state_dict(encode.decode(Settings(source).encoded()))
    assert all(group["lr"] is rates[0] for group in joiner.param_groups)
    assert rates[0].item() == rates[1].item()
