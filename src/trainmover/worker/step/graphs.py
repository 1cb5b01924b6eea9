# SPDX-License-Identifier: Apache-2.0
"""Tensors that a script keeps over its steps with the graph that they came of. Values go along, and
a graph does not: on another machine a backward would end at them, and give less."""

from collections.abc import Mapping

import torch
from torch import nn
from torch.optim import Optimizer

from trainmover.errors import UserError
from trainmover.ids import Step
from trainmover.state import encode
from trainmover.state.items import HasState
from trainmover.state.tracked import Tracked

_KEEP_WHAT_IS_TRAINED = nn.Module, Optimizer
_FIRST = 8
"""Steps."""


class Graphs:
    """Of what is tracked and no module or optimizer: those two keep what is trained.

    kept  those objects, by name
    of    what they were found in: another list as soon as anything is tracked
    """

    def __init__(self, tracked: Tracked) -> None:
        every = tracked.items()
        self.kept = [one for one in every if not isinstance(one[1], _KEEP_WHAT_IS_TRAINED)]
        self.of = tracked.modes

    def check(self, step: Step, small: Mapping[str, bytes]) -> None:
        """Raises UserError if a tensor of one has a graph as this step begins.

        small: states of those that are small, in which tensors show by their types. A large one
        takes long to go through, and shows in the first steps what it is.
        """
        for name, obj in self.kept:
            data = small.get(name)
            has_tensors = data is not None and (b"float" in data or b"complex" in data)
            if has_tensors or (data is None and step <= _FIRST):
                _refuse(name, obj)


def _refuse(name: str, obj: HasState) -> None:
    with torch.no_grad():  # What it works out as it is asked has none.
        structure, tensors = encode.split(obj.state_dict())
    for number, tensor in enumerate(tensors):
        if tensor.grad_fn is not None:
            path = encode.holes(structure)[number].path
            raise UserError(
                f"`{path}` of a {type(getattr(obj, 'owner', obj)).__name__}, tracked as `{name}`, "
                "has the graph of an earlier step behind it.",
                means="Its value can be kept, its graph cannot: on a machine that takes the rank a "
                "backward through it would end there, and give other gradients.",
                do=f"Keep the value alone: `{path}.detach()`. A backward through several batches "
                "belongs in one step that takes them all.",
            )
