# SPDX-License-Identifier: Apache-2.0
"""Which parameters lie in an optimizer's groups, and in which order.

An optimizer's state says of its parameters only where they lie: the first of the second group. A
rank whose script has thawed a part of its model, or exchanged the layers that are trained, has
other groups than one that has just been built; and where a script has chosen them by a set, their
order is that of addresses, another one in each process. Who takes the rank makes its groups the
same before the optimizer's state comes; and where states are compared, names take the place of
numbers.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainmover.errors import StateMismatch
from trainmover.torch_internals.optimizers import is_zero

Named = Callable[[], dict[str, Tensor]]
_GROUPS, _OWN_NAMES = "param_groups", "param_names"
"""In an optimizer's state; in a group of it, where the script has given parameters with names."""
_NUMBERED = re.compile(r"state\[(\d+)\]")
"""As `encode` writes the place of what belongs to one parameter."""


class Grouped:
    """Of one optimizer, as an object with the two state methods.

    named  the parameters of all tracked modules, by name
    """

    def __init__(self, optimizer: torch.optim.Optimizer, named: Named) -> None:
        self.optimizer = optimizer
        self._named = named
        self._begun = [[*group["params"]] for group in optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The names of the parameters in each group, and whether these are no longer the groups
        that were tracked; {} if they are, and some parameters have none. What groups are set to is
        in the optimizer's own state. Raises StateMismatch for groups that have changed and have a
        parameter of no tracked module."""
        groups, names = self.optimizer.param_groups, self._names()
        changed = _members(self._begun) != _members([group["params"] for group in groups])
        if names is not None:
            own = [group.get(_OWN_NAMES, []) for group in groups]
            return {"groups": names, "own": own, "changed": changed}
        if not changed:
            return {}
        raise StateMismatch(
            "An optimizer was given a parameter that belongs to no tracked module.",
            means="It would be lost when this rank moves to another machine.",
            do="Track the module: job.track(model=model, optimizer=optimizer).",
        )

    def _names(self) -> list[list[str]] | None:
        """Of the parameters in each group; None if some have none."""
        known = {id(parameter): name for name, parameter in self._named().items()}
        names = [
            [known.get(id(parameter), "") for parameter in group["params"]]
            for group in self.optimizer.param_groups
        ]
        return names if all(map(all, names)) else None

    def is_as(self, state: dict[str, Any]) -> bool:
        """Whether a `state_dict()` is of groups of the parameters that they have here, whatever
        their order in each."""
        own = _members([group["params"] for group in self.optimizer.param_groups])
        if not state:
            return own == _members(self._begun)
        parameters, names = self._named(), state["groups"]
        known = all(name in parameters for group in names for name in group)
        return known and own == _members([[parameters[name] for name in group] for group in names])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Groups of the same parameters stay what they are, for schedules hold them, and take their
        order; others go, with the state of their parameters, or are added. Raises StateMismatch for
        groups that were built otherwise, and where another order would mean another shard."""
        if not state:
            self._exchange(self._begun, [[] for _ in self._begun])
            return
        parameters = self._named()
        wanted = [[_found(parameters, name) for name in names] for names in state["groups"]]
        if not state["changed"] and _members(wanted) != _members(self._begun):
            raise StateMismatch(
                "An optimizer was built with other groups of parameters than at the source.",
                means="This process cannot take the rank: it built something else.",
                do="A script must build the same objects for a rank wherever it runs.",
            )
        self._exchange(wanted, state["own"])

    def by_name(self, state: Any) -> Any:
        """The optimizer's state without its order; as it is where some parameters have no name."""
        groups = self._names()
        if groups is None or type(state) is not dict or not state.keys() >= {"state", _GROUPS}:
            return state
        names = [name for group in groups for name in group]
        entries = {_name_at(names, key): entry for key, entry in state["state"].items()}
        return state | {"state": entries, _GROUPS: [*map(_sorted, state[_GROUPS], groups)]}

    def _exchange(self, wanted: Sequence[list[Tensor]], own: Sequence[list[str]]) -> None:
        optimizer, groups = self.optimizer, self.optimizer.param_groups
        if [*map(_ids, wanted)] == [_ids(group["params"]) for group in groups]:
            return
        there = dict(zip(_members([group["params"] for group in groups]), groups, strict=True))
        kept = [there.pop(members, None) for members in _members(wanted)]
        groups[:] = [group for group in kept if group is not None]
        used = {id(parameter) for params in wanted for parameter in params}
        for parameter in [key for key in optimizer.state if id(key) not in used]:
            if isinstance(parameter, Tensor):
                del optimizer.state[parameter]
        for at, (params, names) in enumerate(zip(wanted, own, strict=True)):
            if (group := kept[at]) is not None:
                self._order(group, params)
            else:
                given = list(zip(names, params, strict=True)) if names else params
                optimizer.add_param_group({"params": given})
                groups.insert(at, groups.pop())

    def _order(self, group: dict[str, Any], parameters: Sequence[Tensor]) -> None:
        """In place: an optimizer may hold the list."""
        before = _ids(group["params"])
        if before == _ids(parameters):
            return
        if is_zero(self.optimizer):
            raise _other_shard()
        if _OWN_NAMES in group:
            own = dict(zip(before, group[_OWN_NAMES], strict=True))
            group[_OWN_NAMES] = [own[id(parameter)] for parameter in parameters]
        group["params"][:] = parameters


def paths_by_name(paths: Iterable[str], grouped: Mapping[str, Any]) -> list[str]:
    """Of what is in an optimizer's state, as they are in `Grouped.by_name`. grouped: its
    `Grouped.state_dict()`.

    >>> paths_by_name(["state[1].exp_avg"], {"groups": [["model.weight"], ["model.bias"]]})
    ['state.model.bias.exp_avg']
    """
    names = [name for group in grouped.get("groups", []) for name in group]

    def named(path: str) -> str:
        found = _NUMBERED.match(path)
        if found is None or not isinstance(name := _name_at(names, int(found[1])), str):
            return path
        return f"state.{name}{path[found.end() :]}"

    return [named(path) for path in paths]


def _name_at(names: Sequence[str], key: Any) -> Any:
    return names[key] if type(key) is int and key < len(names) else key


def _sorted(group: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    own = {_OWN_NAMES: sorted(group[_OWN_NAMES])} if _OWN_NAMES in group else {}
    return group | {"params": sorted(names)} | own


def _ids(parameters: Sequence[Tensor]) -> list[int]:
    return [*map(id, parameters)]


def _members(groups: Sequence[Sequence[Tensor]]) -> list[frozenset[int]]:
    return [frozenset(_ids(parameters)) for parameters in groups]


def _other_shard() -> StateMismatch:
    return StateMismatch(
        "A ZeroRedundancyOptimizer has its parameters in another order than at the source.",
        means="It has other parameters in its shard, so this process cannot take the rank.",
        do="Give it a list in the order of the model: the order of a set is that of addresses.",
    )


def _found(parameters: dict[str, Tensor], name: str) -> Tensor:
    if name not in parameters:
        raise StateMismatch(
            f"The source trains `{name}`, which does not exist here.",
            means="This process cannot take the rank: it built something else.",
            do="A script must build the same objects for a rank wherever it runs.",
        )
    return parameters[name]
