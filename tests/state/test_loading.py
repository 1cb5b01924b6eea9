"""Small objects get their state, and what the script has names for stays what it is."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from trainmover.errors import StateMismatch
from trainmover.state.rehearsal import rehearse
from trainmover.state.tracked import Tracked


class Notes:
    """One that sets what it is given, as most do."""

    def __init__(self, **kept: Any) -> None:
        self.kept = kept
        self.__dict__ |= kept

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, one in state.items():
            setattr(self, name, one)


def tracked(**objects: Any) -> Tracked:
    its = Tracked()
    for name, one in objects.items():
        its.add(name, one)
    return its


def test_names_for_what_is_replaced_stay_good() -> None:
    norms, shadow = [1.0], {"a": torch.zeros(2)}
    tensor = shadow["a"]
    its = tracked(notes=Notes(norms=norms), clipper=Notes(norms=norms), ema=Notes(shadow=shadow))
    before = its.small_states()
    rehearse(its)
    norms.append(2.0)
    tensor += 1
    its.load_small(before)
    assert its["notes"].norms is its["clipper"].norms is norms  # type: ignore[attr-defined]
    assert its["ema"].shadow["a"] is tensor  # type: ignore[attr-defined]
    assert (norms, tensor.tolist()) == ([1.0], [0.0, 0.0])


def test_so_do_those_for_a_schedule_s_rates_and_for_groups_of_an_optimizer_inside() -> None:
    class Around:
        def __init__(self) -> None:
            self.inside = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)

        def state_dict(self) -> dict[str, Any]:
            return {"inside": self.inside.state_dict()}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.inside.load_state_dict(state["inside"])

    around = Around()
    schedule = LambdaLR(around.inside, lambda step: 0.5**step)
    its, group, rates = (
        tracked(around=around, schedule=schedule),
        around.inside.param_groups[0],
        schedule.base_lrs,
    )
    before = its.small_states()
    group["lr"], rates[0] = 0.3, 0.7
    its.load_small(before)
    assert around.inside.param_groups[0] is group
    assert schedule.base_lrs is rates
    assert (group["lr"], rates) == (0.1, [0.1])


def test_one_that_has_the_state_is_not_asked_to_load_it() -> None:
    class Once(Notes):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            raise AssertionError

    its = tracked(once=Once(count=1))
    its.load_small(its.small_states())


class Counts(Notes):
    """Right for a new one only."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts.update(state["counts"])  # type: ignore[attr-defined]


def test_one_that_adds_is_emptied_first() -> None:
    counts = Counts(counts=Counter("aab"))
    counts.others = [1]  # type: ignore[attr-defined]
    its = tracked(counts=counts)
    before = its.small_states()
    counts.counts["a"] += 1  # type: ignore[attr-defined]
    its.load_small(before)
    assert counts.counts == Counter("aab")  # type: ignore[attr-defined]
    assert counts.others == [1]  # type: ignore[attr-defined]


def test_one_that_has_another_state_behind_it_is_named() -> None:
    class Adds(Notes):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.total += state["total"]

    adds = Adds(total=1)
    its = tracked(adds=adds)
    before = its.small_states()
    adds.total = 2
    with pytest.raises(StateMismatch, match="`adds` has another state than the one that its"):
        its.load_small(before)
    with pytest.raises(StateMismatch, match="`adds` does not take back the state"):
        rehearse(its)
