"""What lines before a step make of state that this step has changed already.

A rank may be lost behind its gate. Who takes it fetches that step's batch again and passes over the
step; what the lines between the two work out of a model is worked out of the model as the step has
left it, and is another number than the rank had. Where it goes into the step, nobody sees it. What
is left of it behind the step stands for nothing, and so does what lines there make of it.
"""

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn, optim
from torch.overrides import TorchFunctionMode

from trainmover.state.tracked import Tracked
from trainmover.torch_internals.modes import enter_below, leave
from trainmover.torch_internals.trees import tree_flatten
from trainmover.worker.join.unknown import FILLS, NumberOfBefore, TensorOfBefore, refuse

_TELLS = frozenset(
    {"tolist", "numpy", "__array__", "__bool__", "__int__", "__index__", "__float__"}
    | {"__complex__", "__contains__", "equal", "allclose", "is_nonzero"}
)
"""What gives plain values of a tensor. Nobody could see what becomes of these."""

_PLAIN = (Tensor, nn.Parameter)


class NewerState(TorchFunctionMode):
    """Follows what is made of what is tracked, and what is made of that. Main thread only."""

    def __init__(self, tracked: Tracked) -> None:
        super().__init__()
        held = [*_tensors(tracked)]
        self._ids = {id(one) for one in held}
        self._memory = {*map(_memory_of, held)} - {0}
        self._made: dict[int, weakref.ref[Tensor]] = {}
        self._is_newer = True

    def begin(self) -> None:
        """The next step has been made: what is tracked is newer than the lines that follow."""
        NumberOfBefore.spreads = True
        enter_below(self)

    def step_passed(self) -> None:
        """The lines that follow find what is tracked as they should."""
        self._is_newer = False

    def end(self) -> None:
        """It has arrived, or is broken off: nothing is to follow from what was made so far."""
        leave(self)
        NumberOfBefore.spreads = False
        for known in self._made.values():
            made = known()
            if made is not None and type(made) in _PLAIN and not self._lies_in_state(made):
                TensorOfBefore.take_place_of(made)
        self._made.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        given = tree_flatten([args, kwargs])[0]
        untimely = [one for one in given if self._is_untimely(one)]
        if not untimely:
            return func(*args, **kwargs)
        if name == "item":
            return NumberOfBefore()
        if name == "__format__":
            return format(NumberOfBefore(), *args[1:])
        if name in _TELLS:
            refuse()
        result = func(*args, **kwargs)
        if getattr(getattr(func, "__self__", None), "__name__", "") == "grad":
            return result
        if name in FILLS and [*map(id, untimely)] == [id(args[0])]:
            self._made.pop(id(args[0]), None)
            return result
        self._note([result, [args[0]] if _writes(name) else [], kwargs.get("out")])
        return result

    def _note(self, made: Any) -> None:
        for one in tree_flatten(made)[0]:
            if not isinstance(one, Tensor):
                continue
            if not self._lies_in_state(one):
                self._made[id(one)] = weakref.ref(one)
            elif not self._is_newer:
                refuse()  # What is tracked is to become what nobody knows.

    def _is_untimely(self, one: object) -> bool:
        if not isinstance(one, Tensor):
            return isinstance(one, NumberOfBefore)
        known = self._made.get(id(one))
        return (known is not None and known() is one) or (
            self._is_newer and self._lies_in_state(one)
        )

    def _lies_in_state(self, tensor: Any) -> bool:
        return id(tensor) in self._ids or _memory_of(tensor) in self._memory


def _tensors(tracked: Tracked) -> Iterator[Tensor]:
    for _, one in tracked.items():
        if isinstance(one, nn.Module):
            yield from _with_gradients(one.parameters())
            yield from one.buffers()
        elif isinstance(one, optim.Optimizer):
            held = [of.values() for of in one.state.values() if isinstance(of, dict)]
            yield from (its for values in held for its in values if isinstance(its, Tensor))


def _with_gradients(parameters: Iterable[Tensor]) -> Iterator[Tensor]:
    for parameter in parameters:
        yield parameter
        if parameter.grad is not None:
            yield parameter.grad


def _memory_of(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except NotImplementedError:  # Sparse ones have several.
        return 0


def _writes(name: str) -> bool:
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name == "__setitem__" or name.startswith("__i")
