# SPDX-License-Identifier: Apache-2.0
"""Which parameters a DistributedDataParallel has used since it has summed gradients last.

With find_unused_parameters=True its reducer marks a parameter as a backward comes to its gradient,
also in no_sync(), and forgets all marks once it has summed. What no rank has marked is left alone
then: so a mark too many or too few makes another gradient. A pass that is cut short leaves others.

The marks are a tensor that torch shows to nobody: `_get_local_used_map` gives what ranks have
summed of it. Both stand side by side in the reducer's memory. Where, and that it is the marks, is
found out once, with a reducer of our own, which is told what to mark. Then they are read and
written in place: a step asks for them three times.
"""

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainmover.errors import UserError
from trainmover.torch_internals.distributed.c10d import ProcessGroup, Reducer
from trainmover.torch_internals.memory import (
    WORD_BYTES,
    native_of,
    read_at,
    way_to_data,
    word_at,
    words_in,
)

_REDUCER_BYTES = 2048
_MARKED, _COUNT = (1, 3), 5


class _Layout(NamedTuple):
    """Offsets in bytes. marks: in the reducer; storage: in the tensor it leads to; data: in that"""

    marks: int
    storage: int
    data: int


looking: list["weakref.ref[DistributedDataParallel]"] = []
"""Those that were made to look for unused parameters. None: nobody need be asked."""


def know(wrapper: DistributedDataParallel) -> None:
    """It was made just now. Raises UserError if it has marks that cannot be read."""
    if not wrapper.find_unused_parameters or not hasattr(wrapper, "reducer"):
        return  # It may leave all its sums to the script.
    used_by(wrapper)
    looking[:] = [one for one in looking if one() is not None]
    looking.append(weakref.ref(wrapper))


def looks(wrapper: DistributedDataParallel) -> bool:
    """Whether it marks what it uses, and forgets that. (One of a static graph learns it once.)"""
    is_looking = wrapper.find_unused_parameters and hasattr(wrapper, "reducer")
    return bool(is_looking) and not wrapper.static_graph


def used_by(wrapper: DistributedDataParallel) -> "memoryview[int]":
    """Its marks: the memory itself, which is there for as long as the wrapper is."""
    layout = _layout()
    view = None if layout is None else _view(wrapper.reducer, layout)
    if view is None:
        raise _unreadable()
    return view


def set_used(wrapper: DistributedDataParallel, used: bytes) -> None:
    """Make these its marks, four bytes to a parameter; b"": none. What a pass that was cut short
    has left beside them goes: above all, that the sum of those it had is known."""
    marks, reducer = used_by(wrapper), wrapper.reducer
    reducer._reset_state()
    if len(used) == marks.nbytes:
        marks[:] = memoryview(used).cast("i")


def _view(reducer: Any, layout: _Layout) -> "memoryview[int] | None":
    """None: it is not as the one that was looked into."""
    summed, marks = reducer._get_local_used_map(), native_of(reducer) + layout.marks
    if summed is None or word_at(marks + WORD_BYTES) != summed._cdata:
        return None
    storage = word_at(word_at(marks) + layout.storage)
    lie = ctypes.c_int32 * summed.numel()
    return memoryview(lie.from_address(word_at(storage + layout.data))).cast("B").cast("i")


@cache
def _layout() -> _Layout | None:
    """None: it is not as it is looked for."""
    reducer, parameters = _probe()
    summed = reducer._get_local_used_map()
    inside = words_in(read_at(native_of(reducer), _REDUCER_BYTES))
    way = way_to_data(torch.frombuffer(bytearray(4), dtype=torch.int32))
    if way is None or summed._cdata not in inside[1:]:
        return None
    layout = _Layout(inside.index(summed._cdata, 1) * WORD_BYTES - WORD_BYTES, *way)
    return layout if _marks_as_told(reducer, parameters, layout) else None


def _probe() -> tuple[Any, list[nn.Parameter]]:
    """A reducer that sums nothing, and what it is for."""
    parameters = [nn.Parameter(torch.zeros(1, device="cpu")) for _ in range(_COUNT)]
    group: Any = ProcessGroup(0, 1)  # type: ignore[call-arg]
    make: Any = Reducer
    whole = [list(range(_COUNT))]
    return make(parameters, whole, [1024], group, find_unused_parameters=True), parameters


def _marks_as_told(reducer: Any, parameters: Sequence[nn.Parameter], layout: _Layout) -> bool:
    """Whether they are where they are looked for. Until that is seen, all words may be anything."""
    at = native_of(reducer) + layout.marks
    for offset in (0, layout.storage, layout.data):
        if not (there := words_in(read_at(at + offset, WORD_BYTES))):
            return False
        at = there[0]
    view = _view(reducer, layout) if len(read_at(at, 4 * _COUNT)) == 4 * _COUNT else None
    for index in _MARKED:
        parameters[index].grad = torch.zeros_like(parameters[index])
        reducer._autograd_hook(index)
    seen = [] if view is None else view.tolist()
    reducer._reset_state()
    if view is None or any(view):
        return False
    return seen == [int(index in _MARKED) for index in range(_COUNT)]


def _unreadable() -> UserError:
    return UserError(
        f"A DistributedDataParallel has find_unused_parameters=True, and torch {torch.__version__} "
        "keeps elsewhere which parameters it has used since it has summed gradients last.",
        means="Accumulated gradients could not be summed as in an undisturbed run after a loss.",
        do="Use torch 2.11 to 2.13, or report the version.",
    )
