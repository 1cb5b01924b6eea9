"""Which parameters lie in an optimizer's groups, once a script has changed that.

An optimizer's state says of its parameters only where they lie: the first of the second group. A
rank whose script has thawed a part of its model, or exchanged the layers that are trained, has
other groups than one that has just been built. Who takes the rank makes its groups the same before
the optimizer's state comes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from trainmover.errors import StateMismatch

Named = Callable[[], dict[str, Tensor]]
_OWN_NAMES = "param_names"
"""Of a group whose parameters the script has given with names."""


class Grouped:
    """Of one optimizer, as an object with the two state methods.

    named  the parameters of all tracked modules, by name
    """

    def __init__(self, optimizer: torch.optim.Optimizer, named: Named) -> None:
        self._optimizer = optimizer
        self._named = named
        self._begun = [[*group["params"]] for group in optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The names of the parameters in each group; {} if they are those that were tracked. What
        groups are set to is in the optimizer's own state. Raises StateMismatch for a parameter of
        no tracked module."""
        groups = self._optimizer.param_groups
        if _places(self._begun) == _places([group["params"] for group in groups]):
            return {}
        names = {id(parameter): name for name, parameter in self._named().items()}
        return {
            "groups": [[_name(names, p) for p in group["params"]] for group in groups],
            "own": [group.get(_OWN_NAMES, []) for group in groups],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Groups that are the same stay what they are, for schedules hold them; others go, with the
        state of their parameters, or are added."""
        if not state:
            self._exchange(self._begun, [[] for _ in self._begun])
            return
        parameters = self._named()
        wanted = [[_found(parameters, name) for name in names] for names in state["groups"]]
        self._exchange(wanted, state["own"])

    def _exchange(self, wanted: Sequence[list[Tensor]], own: Sequence[list[str]]) -> None:
        optimizer, groups = self._optimizer, self._optimizer.param_groups
        if _places(wanted) == _places([group["params"] for group in groups]):
            return
        there = {_place(group["params"]): group for group in groups}
        kept = [there.pop(_place(params), None) for params in wanted]
        groups[:] = [group for group in kept if group is not None]
        used = {id(parameter) for params in wanted for parameter in params}
        for parameter in [key for key in optimizer.state if id(key) not in used]:
            if isinstance(parameter, Tensor):
                del optimizer.state[parameter]
        for at, (params, names) in enumerate(zip(wanted, own, strict=True)):
            if kept[at] is None:
                given = list(zip(names, params, strict=True)) if names else params
                optimizer.add_param_group({"params": given})
                groups.insert(at, groups.pop())


def _place(parameters: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(map(id, parameters))


def _places(groups: Sequence[Sequence[Tensor]]) -> list[tuple[int, ...]]:
    return [_place(parameters) for parameters in groups]


def _name(names: dict[int, str], parameter: Tensor) -> str:
    name = names.get(id(parameter))
    if name is None:
        raise StateMismatch(
            "An optimizer was given a parameter that belongs to no tracked module.",
            means="It would be lost when this rank moves to another machine.",
            do="Track the module: job.track(model=model, optimizer=optimizer).",
        )
    return name


def _found(parameters: dict[str, Tensor], name: str) -> Tensor:
    if name not in parameters:
        raise StateMismatch(
            f"The source trains `{name}`, which does not exist here.",
            means="This process cannot take the rank: it built something else.",
            do="A script must build the same objects for a rank wherever it runs.",
        )
    return parameters[name]
