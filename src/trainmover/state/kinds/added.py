"""Parameter groups that a script has given an optimizer since it was tracked.

A rank whose script has thawed a part of its model trains with a group more than one that has just
been built. Who takes the rank adds it, before the optimizer's state comes.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from trainmover.errors import StateMismatch

Named = Callable[[], dict[str, Tensor]]


class AddedGroups:
    """Of one optimizer, as an object with the two state methods.

    named  the parameters of all tracked modules, by name
    """

    def __init__(self, optimizer: torch.optim.Optimizer, named: Named) -> None:
        self._optimizer = optimizer
        self._named = named
        self._count = len(optimizer.param_groups)
        self._names: list[list[str]] = []

    def state_dict(self) -> dict[str, Any]:
        """The names of the parameters in each added group; {} if none was. Their settings are in
        the optimizer's own state. Raises StateMismatch for a parameter of no tracked module."""
        added = self._optimizer.param_groups[self._count :]
        if not added:
            return {}
        if len(self._names) != len(added):
            names = {id(parameter): name for name, parameter in self._named().items()}
            self._names = [[_name(names, p) for p in group["params"]] for group in added]
        return {"added": self._names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Add those that are missing here."""
        own = len(self._optimizer.param_groups) - self._count
        parameters = self._named()
        for names in state.get("added", [])[own:]:
            if missing := [name for name in names if name not in parameters]:
                raise StateMismatch(
                    f"The source trains `{missing[0]}`, which does not exist here.",
                    means="This process cannot take the rank: it built something else.",
                    do="A script must build the same objects for a rank wherever it runs.",
                )
            self._optimizer.add_param_group({"params": [parameters[name] for name in names]})


def _name(names: dict[int, str], parameter: Tensor) -> str:
    name = names.get(id(parameter))
    if name is None:
        raise StateMismatch(
            "An optimizer was given a parameter that belongs to no tracked module.",
            means="It would be lost when this rank moves to another machine.",
            do="Track the module: job.track(model=model, optimizer=optimizer).",
        )
    return name
