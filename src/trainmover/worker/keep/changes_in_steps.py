# SPDX-License-Identifier: Apache-2.0
"""What the steps of a rank change in the script's own objects.

A rank that is lost behind its gate has made a step of which its record knows only what is tracked.
Who takes its place does not make that step again. So what else steps change is gone, and all ranks
go back to a snapshot: a record that is blind for something says for what.

First steps show what they change: a look follows each of them, but for the first two, in which
models are set up. Later on only fetches look, and what changes from one to the next that no fetch
of the first steps has seen to change may have been changed by a step.
"""

from collections.abc import Callable, Iterable

from torch import nn
from torch.optim import Optimizer

from trainmover.graph.delta import Delta
from trainmover.graph.look import Look
from trainmover.graph.nodes import Ref
from trainmover.state.tracked import Tracked
from trainmover.torch_internals.modules import buffers_of, parameters_in

SET_UP_STEPS, FIRST_STEPS = 2, 4


class ChangesInSteps:
    """Of one run of the script.

    tracked  returns the objects that the record of a gate has
    blind    path of what steps change, and no record of a gate has; "": nothing
    """

    def __init__(self, look: Look, tracked: Callable[[], Iterable[object]]) -> None:
        self.blind = ""
        self._look, self._tracked = look, tracked
        self._steps = 0
        self._known: set[int] = set()
        self._given: set[int] = set()
        self._names: dict[str, dict[str, Ref]] = {}

    @property
    def is_first(self) -> bool:
        """Tell whether the step under way is one of the first."""
        return self._steps < FIRST_STEPS

    def begin_step(self, delta: Delta | None) -> None:
        """A look has come before the step: what is new since the fetch was made for it."""
        if self.is_first and delta is not None:
            self._names, self._given = self._look.names(), {*delta.objects}

    def end_step(self, delta: Delta | None) -> None:
        """A look has followed the step."""
        self._steps += 1
        if self._steps <= SET_UP_STEPS:
            return
        self._see(_changed(delta) - self._given)
        for module, names in self._look.names().items():
            before = self._names.get(module)
            if before is not None and before is not names and not self.blind:
                other = [name for name, one in names.items() if before.get(name) != one]
                self.blind = f"{module}.{other[0]}" if other else self.blind

    def at_fetch(self, delta: Delta | None) -> None:
        """A look has come at a fetch."""
        changed = _changed(delta)
        if self.is_first:
            self._known |= changed
        elif changed and not changed <= self._known:
            self._see(changed - self._known)
            self._known |= changed

    def _see(self, changed: set[int]) -> None:
        if not changed or self.blind:
            return
        if changed := changed - self._look.reached_from(self._tracked()):
            self.blind = self._look.path_of(min(changed)) or "memory of a tensor or an array"


def in_records(tracked: Tracked) -> list[object]:
    """Return what the record of a gate, or a replica, has of tracked objects.

    Of a module these are its parameters and buffers, of an optimizer its state and its groups of
    parameters: what hooks keep, or the attributes of an optimizer, is in no state_dict.
    """
    found: list[object] = []
    for _, obj in tracked.items():
        if isinstance(obj, nn.Module):
            for module in obj.modules():
                found += [parameters_in(module), buffers_of(module)]
        elif isinstance(obj, Optimizer):
            found += [obj.state, obj.param_groups]
        else:
            found.append(getattr(obj, "owner", obj))
    return found


def _changed(delta: Delta | None) -> set[int]:
    """Return the nodes that have other bodies, and are no new ones."""
    return set() if delta is None else delta.nodes.keys() - delta.objects.keys()
