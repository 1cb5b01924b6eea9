# SPDX-License-Identifier: Apache-2.0
"""What lines before a step make of state that this step has changed already.

A rank may be lost behind its gate. Who takes it fetches that step's batch again and passes over the
step; what the lines between the two work out of a model is worked out of the model as the step has
left it, and is another number than the rank had. Where it goes into the step, nobody sees it. What
is left of it behind the step stands for nothing, and so does what lines there make of it.

The same is true of what the lines behind the step make of state that they change themselves, as an
average of weights that is brought up to date there, and then tried: the state is a rank's that has
been through these lines. Which state that is the rank's first steps have told; and it is seen here,
where the lines come to write to it, past all counters as well (`.data`).
"""

import math
import weakref
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.overrides import TorchFunctionMode

from trainmover.state.encode import split
from trainmover.state.tracked import Tracked
from trainmover.torch_internals.modes import enter_below, leave
from trainmover.torch_internals.tensors import base_of, memory_of
from trainmover.torch_internals.trees import tree_flatten, tree_map
from trainmover.worker.join.unknown import (
    FILLS,
    SHOWN,
    NumberOfBefore,
    Refused,
    TensorOfBefore,
    refuse,
)
from trainmover.worker.step.changes import watched

_TELLS = frozenset(
    {"tolist", "numpy", "__array__", "__bool__", "__int__", "__index__", "__float__"}
    | {"__complex__", "__contains__", "equal", "allclose", "is_nonzero"}
)
"""What gives plain values of a tensor. Nobody could see what becomes of these."""

_NO_WRITES = frozenset({"requires_grad_", "detach_", "share_memory_"})
_PLAIN = (Tensor, nn.Parameter)
Made = weakref.ref[Tensor]


class NewerState(TorchFunctionMode):
    """Follows what is made of what is tracked, and what is made of that. Main thread only.

    What no function of torch's is called for is not seen: what a compiled model gives, or one of
    TorchScript, and how many elements a condition leaves.
    """

    def __init__(self, tracked: Tracked) -> None:
        super().__init__()
        self._tracked = tracked
        self._state = self._newer = _Those(_newer_in(tracked))
        self._made: dict[int, Made] = {}
        self._made_in: dict[int, Made] = {}  # By the memory that they lie in.

    def begin(self) -> None:
        """The next step has been made: what is tracked is newer than the lines that follow."""
        NumberOfBefore.spreads, Refused.since = True, False
        enter_below(self)

    def step_passed(self, moved: Collection[str] = ()) -> None:
        """The lines that follow find what is tracked as they should, but for these paths of it."""
        every = watched(self._tracked) if moved else ()
        self._newer = _Those(one for path, one in every if path in moved)

    def break_off(self) -> None:
        """It does not arrive."""
        leave(self)
        NumberOfBefore.spreads = False

    def arrive(self) -> None:
        """Nothing is to follow from what was made so far. Raises StateMismatch if something has,
        and the script has caught what that raised."""
        self.break_off()
        if Refused.since:
            refuse()
        gradients = {id(one.grad) for one in _parameters(self._tracked)}
        for known in self._made.values():
            made = known()
            if made is None or type(made) not in _PLAIN or id(made) in gradients:
                continue
            if made not in self._state:
                TensorOfBefore.take_place_of(made)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        given = tree_flatten([args, kwargs])[0]
        untimely = [one for one in given if self._is_untimely(one)]
        if not untimely:
            result = func(*args, **kwargs)
            is_behind = self._newer is not self._state
            if is_behind and _writes(name) and name not in FILLS:
                self._changed(next(iter(args or kwargs.values())))
            return result
        if name == "item":
            return NumberOfBefore()
        if name in SHOWN:
            return SHOWN[name] if name == "__repr__" else format(NumberOfBefore(), *args[1:])
        if name in _TELLS:
            refuse()
        if any(isinstance(one, NumberOfBefore) for one in untimely):
            args, kwargs = tree_map(_as_float, (args, kwargs))
        result = func(*args, **kwargs)
        first = next(iter(args or kwargs.values()))
        if name in FILLS and all(one is first for one in untimely):
            self._made.pop(id(first), None)
            self._made_in.pop(memory_of(first), None)
            return result
        self._note([result, [first] if _writes(name) else [], kwargs.get("out")])
        return result

    def _changed(self, written: Any) -> None:
        """These lines have changed it themselves: one tensor, or several."""
        for one in tree_flatten(written)[0]:
            if isinstance(one, Tensor) and one in self._state:
                self._newer.add(one)

    def _note(self, made: Any) -> None:
        for one in tree_flatten(made)[0]:
            if not isinstance(one, Tensor):
                continue
            if one in self._state:
                if one not in self._newer:
                    refuse()  # What is tracked is to become what nobody knows.
                continue
            for its in (one, base_of(one)):
                if its is not None:
                    self._made[id(its)] = self._made_in[memory_of(its)] = weakref.ref(its)

    def _is_untimely(self, one: object) -> bool:
        if not isinstance(one, Tensor):
            return isinstance(one, NumberOfBefore)
        known = self._made.get(id(one))
        if known is not None and known() is one:
            return True
        if one in self._state:
            return one in self._newer
        memory = memory_of(one)
        there = self._made_in.get(memory) if memory else None
        return there is not None and there() is not None


class _Those:
    """Some tensors, and whatever lies in their memory."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        held = list(tensors)
        self._ids = {*map(id, held)}
        self._memory = {*map(memory_of, held)} - {0}

    def add(self, tensor: Tensor) -> None:
        """It lives as long as these are asked for."""
        self._ids.add(id(tensor))
        if memory := memory_of(tensor):
            self._memory.add(memory)

    def __contains__(self, tensor: Tensor) -> bool:
        return id(tensor) in self._ids or memory_of(tensor) in self._memory


def _as_float(one: object) -> object:
    return math.nan if isinstance(one, NumberOfBefore) else one


def _newer_in(tracked: Tracked) -> Iterator[Tensor]:
    """What travels apart from the record, which is as it was at the fetch."""
    with_record = {id(one) for _, held in tracked.buffer_states() for one in held.values()}
    yield from _with_gradients(_parameters(tracked))
    large = {*tracked.bulk_names()}
    for name, one in tracked.items():
        if name not in large:
            continue
        if isinstance(one, nn.Module):
            yield from (its for its in one.buffers() if id(its) not in with_record)
        elif isinstance(one, optim.Optimizer):
            states = getattr(one, "state", {}).values()
            held = [of.values() for of in states if isinstance(of, dict)]
            yield from (its for values in held for its in values if isinstance(its, Tensor))
        else:
            yield from split(one.state_dict())[1]


def _parameters(tracked: Tracked) -> Iterator[Tensor]:
    for _, one in tracked.items():
        if isinstance(one, nn.Module):
            yield from one.parameters()


def _with_gradients(parameters: Iterable[Tensor]) -> Iterator[Tensor]:
    for parameter in parameters:
        yield parameter
        if parameter.grad is not None:
            yield parameter.grad


def _writes(name: str) -> bool:
    in_place = name.endswith("_") and not name.endswith("__") and name not in _NO_WRITES
    return in_place or name == "__setitem__" or name.startswith("__i")
