# SPDX-License-Identifier: Apache-2.0
"""To which of its arguments a step writes, as one that normalises its batch in place does.

Where it is passed over nothing writes to them, and the lines behind it would go on with the batch
as it was loaded. The first steps, which are made here, show which they are. Where a step is passed
over, these stand for nothing: they have a shape, and whoever calculates with them hears of it.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from xxhash import xxh3_64_digest

from trainmover.state import tensor_bytes
from trainmover.state.items import HasState
from trainmover.state.kinds.values import Attributes
from trainmover.state.tracked import Tracked
from trainmover.torch_internals.tensors import memory_of, version_of
from trainmover.torch_internals.trees import tree_flatten
from trainmover.worker.join.unknown import WRITTEN, TensorOfBefore, UnknownNumber


class NumberOfStep(UnknownNumber):
    """One that such a tensor has given."""

    why = WRITTEN


class TensorOfStep(TensorOfBefore):
    """One that a step has written to, and that was passed over."""

    why = WRITTEN
    number: type[UnknownNumber] = NumberOfStep


class Written:
    """Of one run of the script."""

    def __init__(self) -> None:
        self._numbers: dict[object, set[int]] = {}

    def begin_step(self, code: object, args: Any, kwargs: Any) -> Callable[[], None]:
        """It is called with these. What comes back is to be called once it is over."""
        given = _tensors_in(args, kwargs)
        before = [_mark(one) for one in given]

        def end() -> None:
            after = [_mark(one) for one in given]
            changed = {n for n, mark in enumerate(before) if after[n] != mark}
            if changed:
                self._numbers.setdefault(code, set()).update(changed)

        return end

    def pass_over(self, code: object, args: Any, kwargs: Any, tracked: Tracked) -> None:
        """It was called with these, and not made. What is tracked is given by others."""
        numbers = self._numbers.get(code)
        if not numbers:
            return
        given = {memory_of(one) for _, obj in tracked.items() for one in _held_by(obj)}
        for number, tensor in enumerate(_tensors_in(args, kwargs)):
            is_own = number in numbers and type(tensor) is Tensor
            if is_own and memory_of(tensor) not in given:
                TensorOfStep.take_place_of(tensor)


def _mark(tensor: Tensor) -> tuple[int, bytes]:
    """What is written by numpy, or by `.data`, no version counts."""
    shows = tensor.is_cpu and tensor_bytes.is_plain(tensor)
    return version_of(tensor), xxh3_64_digest(tensor_bytes.view_bytes(tensor)) if shows else b""


def _held_by(obj: HasState) -> list[Tensor]:
    if isinstance(obj, nn.Module):
        return [*obj.parameters(), *obj.buffers()]
    return _tensors_in(obj.state_dict(), {}) if isinstance(obj, Attributes) else []


def _tensors_in(args: Any, kwargs: Any) -> list[Tensor]:
    leaves = tree_flatten((args, kwargs))[0]
    return [one for one in leaves if isinstance(one, Tensor) and not one.is_inference()]
