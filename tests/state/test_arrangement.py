"""Where tracked state lies, and what of it is shown, is compared where a machine takes a rank."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.kept import Kept
from trainmover.errors import StateMismatch
from trainmover.state.arrangement import (
    Arrangement,
    arrangement_of,
    check,
    hides_trained,
    in_common,
)
from trainmover.state.items import HasState
from trainmover.state.tracked import Tracked

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
    kept = Kept(best, ("state",))
    return [("model", model), ("optimizer", optimizer), ("best", kept)]


def arranged(model: nn.Module, *optimizers: torch.optim.Optimizer) -> Arrangement:
    others = [(f"optimizer{number}", one) for number, one in enumerate(optimizers)]
    return arrangement_of([("model", model), *others])


def test_a_state_that_was_loaded_is_the_very_one_that_is_kept() -> None:
    theirs, mine = (
        arrangement_of(rolled_back(lambda state: state)),
        arrangement_of(rolled_back(copy.deepcopy)),
    )
    assert len(theirs.memory) == 2
    assert mine.memory == []
    with pytest.raises(StateMismatch, match=r"`best.state.* and `optimizer.* memory in common on"):
        check(theirs, mine, mine)
    with pytest.raises(StateMismatch, match="have memory in common here"):
        check(mine, theirs, theirs)
    check(theirs, theirs, mine)


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4), nn.Conv2d(4, 3, 2))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return model


def adam(model: nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 3, 4, 4)).sum().backward()
    optimizer.step()
    return optimizer


def test_what_is_as_usual_has_nothing_to_tell() -> None:
    model = network()
    assert arranged(model, adam(model)) == Arrangement([], [], {}, [], {}, [])


def _tied(model: nn.Sequential) -> None:
    model[2].weight = nn.Parameter(model[0].weight.data.view(3, 4, 2, 2))


def _one_memory_for_buffers(model: nn.Sequential) -> None:
    model[1].running_mean = model[1].running_var


def _channels_last(model: nn.Sequential) -> None:
    model.to(memory_format=torch.channels_last)


def _asks(model: nn.Sequential) -> None:
    model[1].running_mean.requires_grad_(True)


def _rounds(model: nn.Sequential) -> None:
    def rounded(module: nn.Module, state: Any, prefix: str, meta: Any) -> None:
        state[f"{prefix}weight"] = state[f"{prefix}weight"].to(torch.bfloat16)

    model[0].register_state_dict_post_hook(rounded)


def _leaves_out(model: nn.Sequential) -> None:
    def without(module: nn.Module, state: Any, prefix: str, meta: Any) -> None:
        del state[f"{prefix}weight"]

    model[2].register_state_dict_post_hook(without)


CHANGES: dict[str, Callable[[nn.Sequential], None]] = {
    "tied": _tied,
    "one memory for buffers": _one_memory_for_buffers,
    "channels last": _channels_last,
    "a buffer asks for gradients": _asks,
    "what is saved is rounded": _rounds,
    "what is trained is left out": _leaves_out,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_that_is_arranged_otherwise_later_is_no_place_for_the_values(name: str) -> None:
    changed, usual = network(), network()
    CHANGES[name](changed)
    first = arranged(network())
    with pytest.raises(StateMismatch):
        check(arranged(changed), arranged(usual), first)
    same = network()
    CHANGES[name](same)
    if not hides_trained(arranged(same)):
        check(arranged(changed), arranged(same), first)
        with pytest.raises(StateMismatch):
            check(arranged(usual), arranged(changed), first)


@pytest.mark.parametrize("change", [_rounds, _leaves_out])
def test_what_is_trained_and_not_shown_is_named(
    change: Callable[[nn.Sequential], None],
) -> None:
    model = network()
    change(model)
    assert hides_trained(arranged(model)) in ("model.0.weight", "model.2.weight")


def test_a_copy_may_be_shown() -> None:
    model = network()
    shown = model.state_dict
    model.state_dict = lambda: {name: one.clone() for name, one in shown().items()}  # type: ignore
    assert not arranged(model).hidden


def test_what_is_frozen_may_be_left_out_as_long_as_it_is_the_same() -> None:
    models = [network(), network()]
    models[1].load_state_dict(models[0].state_dict())
    for model in models:
        model[2].requires_grad_(False)
        model[2].weight.grad = None
        _leaves_out(model)
    here, there = map(arranged, models)
    assert here.hidden.keys() == {"model.2.weight"}
    assert not hides_trained(here)
    check(there, here, here)
    models[1][2].weight.mul_(1.5)
    with pytest.raises(StateMismatch, match=r"`model\.2\.weight` is in no state_dict"):
        check(arranged(models[1]), here, here)


def _leave_out_momentum(optimizer: torch.optim.Optimizer) -> None:
    def without(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        return state | {"state": {}}

    optimizer.register_state_dict_post_hook(without)


def test_an_optimizer_that_hides_its_state_is_named() -> None:
    model = network()
    optimizer = adam(model)
    _leave_out_momentum(optimizer)
    assert hides_trained(arranged(model, optimizer)).startswith("optimizer0.state.0.")


def test_states_that_two_optimizers_share_from_some_step_on() -> None:
    def pair(*, shared: bool) -> Arrangement:
        model = network()
        one, other = adam(model), adam(model)
        if shared:
            other.state = one.state
        return arranged(model, one, other)

    theirs, mine = pair(shared=True), pair(shared=False)
    with pytest.raises(StateMismatch, match="memory in common on the rank"):
        check(theirs, mine, mine)


def test_a_list_that_was_one_from_the_start_may_be_two_where_values_were_put() -> None:
    def groups(*, shared: bool) -> Arrangement:
        model = network()
        optimizer = torch.optim.AdamW([{"params": one.parameters()} for one in model if one])
        betas = [0.9, 0.99]
        for group in optimizer.param_groups:
            group["betas"] = betas if shared else [*betas]
        return arranged(model, optimizer)

    theirs, mine = groups(shared=True), groups(shared=False)
    check(theirs, mine, theirs)
    with pytest.raises(StateMismatch, match="are one object on the rank"):
        check(theirs, mine, mine)
    check(mine, theirs, theirs)


def test_kept_arrays_and_views_are_told_apart() -> None:
    best = Best()
    best.state = {"all": np.ones((3, 2)), "other": np.ones(2)}
    kept = [("best", Kept(best, ("state",)))]
    assert in_common(kept) == []
    best.state["other"] = best.state["all"][1]
    assert in_common(kept) == [["best.state.all", "best.state.other"]]


def test_parts_of_one_piece_of_memory_that_lie_beside_each_other_are_two() -> None:
    model, flat = nn.Linear(2, 2), torch.zeros(6)
    model.weight.data, model.bias.data = flat[:4].view(2, 2), flat[4:]
    assert arranged(model).memory == []
    model.register_buffer("flat", flat)
    assert arranged(model).memory == [["model.bias", "model.flat", "model.weight"]]


def test_a_schedule_of_schedules_has_one_list_of_rates_or_two() -> None:
    """As it has loaded a state or not: none of torch's is filled in place."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    parts = [torch.optim.lr_scheduler.ConstantLR(optimizer) for _ in range(2)]
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [2])
    assert schedule._last_lr is parts[0]._last_lr
    assert arranged(schedule).objects == []


def test_what_lies_in_two_kept_objects_is_one() -> None:
    row, one, other = [1.0], SimpleNamespace(rows=[]), SimpleNamespace(by_name={})
    one.rows.append(row)
    other.by_name["a"] = row
    kept = [("one", Kept(one, ("rows",))), ("other", Kept(other, ("by_name",)))]
    assert arrangement_of(kept).objects == [["one.rows.0", "other.by_name.a"]]


def test_where_lines_behind_a_record_have_run_nobody_asks_what_lies_where() -> None:
    owner = SimpleNamespace(rows=[[1.0]], last=0)
    owner.last = owner.rows[0]
    tracked = Tracked()
    tracked.add("kept", Kept(owner, ("rows", "last")))
    small = tracked.small_states()
    assert tracked.moved_since(small) == []
    owner.rows.insert(0, [2.0])
    moved = tracked.moved_since(small)
    assert moved == ["kept"]
    assert tracked.arrangement(moved).objects == []
