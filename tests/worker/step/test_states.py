"""What an optimizer keeps beside tensors is put back where a step is run again."""

from collections import OrderedDict, deque
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from tests.again import Again
from trainmover.state.tracked import Tracked

PLAIN: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "a number": (1.0, lambda one: one + 1),
    "a text": ("warm", lambda one: one + "er"),
    "a list": ([1, 2], lambda one: [*one, 3]),
    "a tuple": ((1, 2), lambda one: (*one, 3)),
    "a list that is longer": ([1, 2], lambda one: one.append(3) or one),
    "a list in a list": ([[1], 2], lambda one: one[0].append(3) or one),
    "a dict in a tuple": (({"n": 1},), lambda one: one[0].update(n=one[0]["n"] + 1) or one),
    "a deque": (deque([1], maxlen=2), lambda one: one.append(one[-1] + 1) or one),
    "a set": ({1}, lambda one: one.add(len(one) + 1) or one),
    "an ordered dict": (OrderedDict(n=1), lambda one: one.update(n=one["n"] + 1) or one),
    "an array": (numpy.zeros(2), lambda one: one.__iadd__(1)),
    "a number of numpy's": (numpy.float32(1), lambda one: one + 1),
}


def build(layers: int = 2) -> tuple[Tracked, torch.optim.Optimizer]:
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(layers)])
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    tracked = Tracked()
    tracked.add("model", model)
    tracked.add("optimizer", optimizer)
    return tracked, optimizer


def first(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return optimizer.state[optimizer.param_groups[0]["params"][0]]  # type: ignore[no-any-return]


def shown(optimizer: torch.optim.Optimizer) -> str:
    return repr(optimizer.state_dict())


@pytest.mark.parametrize("kind", PLAIN)
def test_what_a_step_changes_is_put_back(kind: str) -> None:
    tracked, optimizer = build()
    begun, change = PLAIN[kind]
    first(optimizer)["level"] = deepcopy(begun)
    for _ in range(3):
        was = shown(optimizer)
        taken = Again(tracked)
        first(optimizer)["level"] = change(first(optimizer)["level"])
        assert shown(optimizer) != was
        assert taken.put_back() == ""
        assert shown(optimizer) == was
        first(optimizer)["level"] = change(first(optimizer)["level"])


def test_the_containers_stay_what_they_are() -> None:
    tracked, optimizer = build()
    state, levels = first(optimizer), [1.0]
    state["levels"] = levels
    taken = Again(tracked)
    levels.append(2.0)
    state["levels"] = [3.0]
    assert taken.put_back() == ""
    assert first(optimizer) is state
    assert state["levels"] is levels
    assert levels == [1.0]


def test_what_a_step_adds_goes_and_what_it_takes_comes_again() -> None:
    tracked, optimizer = build()
    state = first(optimizer)
    state["kept"] = 1.0
    names = [*state]
    for _ in range(2):
        taken = Again(tracked)
        for one in optimizer.state.values():
            one["level"] = 2.0
        del state["kept"]
        assert taken.put_back() == ""
        assert [*state] == names
        assert all("level" not in one for one in optimizer.state.values())


def test_a_value_for_no_parameter_is_put_back() -> None:
    tracked, optimizer = build()
    optimizer.state["level"] = 1.0  # type: ignore[index]
    for value in (1.0, 5.0):
        optimizer.state["level"] = value  # type: ignore[index]
        taken = Again(tracked)
        optimizer.state["level"] = -1.0  # type: ignore[index]
        assert taken.put_back() == ""
        assert optimizer.state["level"] == value  # type: ignore[index]


def test_a_nested_table_beside_numbers_is_put_back() -> None:
    tracked, optimizer = build()
    one, other = [*optimizer.state.values()][:2]
    one["level"], other["levels"] = 0.0, {"fast": 0.0}
    for number in range(3):
        one["level"] = float(number)
        taken = Again(tracked)
        one["level"] = other["levels"]["fast"] = -1.0
        assert taken.put_back() == ""
        assert (one["level"], other["levels"]["fast"]) == (number, 0.0)


def test_a_tensor_that_an_update_puts_there_stays() -> None:
    """Some optimizers make new ones each time; no older one may come again."""
    tracked, optimizer = build()
    for level in (None, 0.0):
        if level is not None:
            first(optimizer)["level"] = level
        first(optimizer)["exp_avg"] = newer = torch.ones(2, 2)
        taken = Again(tracked)
        first(optimizer)["level"] = 2.0
        assert taken.put_back() == ""
        assert first(optimizer)["exp_avg"] is newer
        assert first(optimizer).get("level") == level


def test_a_tensor_that_a_step_has_thrown_away_comes_again() -> None:
    tracked, optimizer = build()
    kept = first(optimizer)["exp_avg"]
    taken = Again(tracked)
    del first(optimizer)["exp_avg"]
    assert taken.put_back() == ""
    assert first(optimizer)["exp_avg"] is kept


def test_an_optimizer_that_comes_later_is_seen() -> None:
    tracked, _ = build()
    more = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1)
    more.state[more.param_groups[0]["params"][0]]["level"] = 1.0
    tracked.add("more", more)
    taken = Again(tracked)
    first(more)["level"] = 2.0
    assert taken.put_back() == ""
    assert first(more)["level"] == 1.0
