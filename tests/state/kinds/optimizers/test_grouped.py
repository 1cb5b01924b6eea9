"""What a script has made of an optimizer's groups they are where its rank goes on."""

from typing import Any

import pytest
import torch
from torch import nn

from trainmover.errors import StateMismatch
from trainmover.state.proof import digest
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


def test_state_fits_where_the_same_is_tracked_in_the_same_groups() -> None:
    source, joiner = build(1), build(2)
    assert joiner.fits(source.bulk_header()[0])
    thaw(source)
    step(source)
    assert not joiner.fits(source.bulk_header()[0])
    thaw(joiner)
    assert joiner.fits(source.bulk_header()[0])
    assert not build(3).fits(joiner.bulk_header()[0])
    assert not joiner.fits(build(3).bulk_header()[0])
    source.add("other", nn.Linear(2, 1))
    assert not joiner.fits(source.bulk_header()[0])
    assert [len(group["params"]) for group in joiner["optimizer"].param_groups] == [2, 2]  # type: ignore[attr-defined]


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


def build_blocks(seed: int, *, named: bool = False) -> Tracked:
    """Three layers of one shape: their state would fit in each other's place."""
    torch.manual_seed(seed)
    model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(3)])
    tracked = Tracked()
    tracked.add("model", model)
    groups: Any = [
        {"params": [*(block.named_parameters() if named else block.parameters())], "lr": 0.1 * at}
        for at, block in enumerate(model, 1)
    ]
    tracked.add("optimizer", torch.optim.Adam(groups))
    return tracked


def train(tracked: Tracked) -> None:
    model: Any = tracked["model"]
    optimizer: Any = tracked["optimizer"]
    model(torch.ones(1, 3)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def remove(tracked: Tracked, place: int) -> dict[str, Any]:
    optimizer: Any = tracked["optimizer"]
    gone: dict[str, Any] = optimizer.param_groups.pop(place)
    for parameter in gone["params"]:
        del optimizer.state[parameter]
    return gone


def is_as_source(joiner: Tracked, source: Tracked) -> bool:
    train(source)
    train(joiner)
    return joiner.digest() == source.digest()


@pytest.mark.parametrize("trained_there", [False, True])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_group_that_was_removed_is_gone(place: int, *, trained_there: bool) -> None:
    source, joiner = build_blocks(1), build_blocks(2)
    train(source)
    if trained_there:
        train(joiner)
    remove(source, place)
    move(source, joiner)
    assert is_as_source(joiner, source)


@pytest.mark.parametrize("named", [False, True])
def test_a_group_in_the_place_of_another_has_the_state_of_its_own(*, named: bool) -> None:
    source, joiner = build_blocks(1, named=named), build_blocks(2, named=named)
    for one in (source, joiner):
        train(one)
    optimizer: Any = source["optimizer"]
    optimizer.add_param_group(_anew(remove(source, 0)))
    train(source)
    move(source, joiner)
    there: Any = joiner["optimizer"]
    names = {id(p): name for name, p in joiner._named_parameters().items()}
    assert names[id(there.param_groups[-1]["params"][0])] == "model.0.weight"
    assert is_as_source(joiner, source)


def _anew(group: dict[str, Any]) -> dict[str, Any]:
    names = group.get("param_names")
    params = group["params"]
    return {"params": [*zip(names, params, strict=True)] if names else params, "lr": 0.5}


def test_groups_in_another_order_keep_what_they_are() -> None:
    source, joiner = build_blocks(1), build_blocks(2)
    train(source)
    train(joiner)
    optimizer: Any = source["optimizer"]
    optimizer.param_groups.reverse()
    there: Any = joiner["optimizer"]
    before = [*there.param_groups]
    move(source, joiner)
    assert [id(group) for group in there.param_groups] == [id(group) for group in before[::-1]]
    assert is_as_source(joiner, source)


def test_what_changed_here_and_not_there_is_put_back() -> None:
    source, joiner = build_blocks(1), build_blocks(2)
    train(source)
    train(joiner)
    remove(joiner, 1)
    move(source, joiner)
    assert is_as_source(joiner, source)


def build_by_set(order: list[int], *, named: bool = False) -> Tracked:
    """As `build_blocks`, in one group, with its parameters in the order that a set has them."""
    torch.manual_seed(1)
    model = nn.Sequential(*[nn.Linear(3, 3, bias=False) for _ in order])
    given: Any = [*(model.named_parameters() if named else model.parameters())]
    tracked = Tracked()
    tracked.add("model", model)
    tracked.add("optimizer", torch.optim.Adam([given[at] for at in order], lr=0.1))
    return tracked


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("trained_there", [False, True])
def test_each_parameter_has_its_own_state_whatever_their_order(
    *, named: bool, trained_there: bool
) -> None:
    source, joiner = (build_by_set(order, named=named) for order in ([0, 1, 2], [2, 0, 1]))
    train(source)
    if trained_there:
        train(joiner)
    there: Any = joiner["optimizer"]
    held = there.param_groups[0]["params"]  # As LBFGS does.
    move(source, joiner)
    model: Any = joiner["model"]
    for params in (held, there.param_groups[0]["params"]):
        assert [id(one) for one in params] == [id(one) for one in model.parameters()]
    if named:
        assert there.param_groups[0]["param_names"] == ["0.weight", "1.weight", "2.weight"]
    assert is_as_source(joiner, source)


def test_ranks_hold_the_same_whatever_the_order() -> None:
    one, other = build_by_set([0, 1, 2]), build_by_set([2, 0, 1])
    train(one)
    train(other)
    assert one.digest() == other.digest()
    assert one.signature() == other.signature()
    assert one.replica_digest() == other.replica_digest()
    assert one.bulk_paths(one.bulk_header()[0]) != other.bulk_paths(other.bulk_header()[0])
    first: Any = other["model"]
    second: Any = other["optimizer"]
    states = second.state
    a, b = first[0].weight, first[1].weight
    states[a], states[b] = states[b], states[a]
    assert one.replica_digest() != other.replica_digest()


def test_paths_of_a_header_are_those_of_the_digest() -> None:
    tracked = build_by_set([2, 0, 1])
    train(tracked)
    header, tensors = tracked.bulk_header()
    hashes = tracked.replica_digest().tensors
    paths = tracked.bulk_paths(header)
    assert {*paths} == {*hashes}
    assert [*map(digest.hashes_of, [[one] for one in tensors])] == [[hashes[p]] for p in paths]


def test_parameters_of_no_tracked_module_stay_in_their_order() -> None:
    tracked = Tracked()
    tracked.add("optimizer", torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9))
    there: Any = tracked["optimizer"]
    there.param_groups[0]["params"][0].grad = torch.ones(1)
    there.step()
    header, _ = tracked.bulk_header()
    assert tracked.bulk_paths(header) == ["optimizer.state[0].momentum_buffer"]
    assert {*tracked.replica_digest().tensors} == {"optimizer.state[0].momentum_buffer"}


def test_groups_that_come_with_bulk_state_are_passed_over_on_the_way() -> None:
    def rank() -> tuple[torch.optim.Optimizer, nn.Module, Tracked]:
        body, head = nn.Linear(1, 1), nn.Linear(1, 1)
        optimizer, tracked = torch.optim.SGD(head.parameters(), lr=0.1), Tracked()
        for name, one in (("body", body), ("head", head), ("optimizer", optimizer)):
            tracked.add(name, one)
        return optimizer, body, tracked

    theirs, body, source = rank()
    theirs.add_param_group({"params": body.parameters(), "lr": 0.3})
    theirs.param_groups[0]["lr"] = 0.2
    own, _, joiner = rank()
    joiner.load_small(source.small_states(), on_the_way=True)
    assert [group["lr"] for group in own.param_groups] == [0.2]
    with pytest.raises(StateMismatch, match="has set 2 parameter groups"):
        joiner.load_small(source.small_states())
