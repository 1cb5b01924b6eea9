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
import os
import struct
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainmover.errors import UserError
from trainmover.torch_internals.distributed.c10d import ProcessGroup, Reducer

_WORD = struct.Struct("N")
_REDUCER_BYTES, _HEAD_BYTES, _STORAGE_BYTES = 2048, 176, 48
_PYTHONS = object.__basicsize__
"""Bytes of a Python object before its own: pybind11 keeps the address of C++'s there."""
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
    summed, at = reducer._get_local_used_map(), _word(id(reducer) + _PYTHONS)
    if summed is None or _word(at + layout.marks + _WORD.size) != summed._cdata:
        return None
    storage = _word(_word(at + layout.marks) + layout.storage)
    lie = ctypes.c_int32 * summed.numel()
    return memoryview(lie.from_address(_word(storage + layout.data))).cast("B").cast("i")


@cache
def _layout() -> _Layout | None:
    """None: it is not as it is looked for."""
    reducer, parameters = _probe()
    summed = reducer._get_local_used_map()
    storage = summed.untyped_storage()
    at = _first(_read(_word(id(reducer) + _PYTHONS), _REDUCER_BYTES), summed._cdata)
    in_head = _first(_read(summed._cdata, _HEAD_BYTES), storage._cdata)
    data = _first(_read(storage._cdata, _STORAGE_BYTES), storage.data_ptr())
    if not at or in_head is None or data is None:
        return None
    layout = _Layout(at - _WORD.size, in_head, data)
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
    at = _word(id(reducer) + _PYTHONS) + layout.marks
    for offset in (0, layout.storage, layout.data):
        if not (there := _read(at + offset, _WORD.size)):
            return False
        at = there[0]
    view = _view(reducer, layout) if _read(at, 4 * _COUNT) else None
    for index in _MARKED:
        parameters[index].grad = torch.zeros_like(parameters[index])
        reducer._autograd_hook(index)
    seen = [] if view is None else view.tolist()
    reducer._reset_state()
    if view is None or any(view):
        return False
    return seen == [int(index in _MARKED) for index in range(_COUNT)]


def _read(address: int, count: int) -> list[int]:
    """Words that are there. What is no address is read too: so by the system, which says that there
    is nothing."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        data = os.pread(memory, count, address)
    except (OSError, OverflowError, ValueError):
        return []
    finally:
        os.close(memory)
    return [word for (word,) in _WORD.iter_unpack(data[: len(data) // _WORD.size * _WORD.size])]


def _first(words: Sequence[int], value: int) -> int | None:
    """Where it stands, in bytes."""
    return words.index(value) * _WORD.size if value in words else None


def _word(address: int) -> int:
    word: int = _WORD.unpack(ctypes.string_at(address, _WORD.size))[0]
    return word


def _unreadable() -> UserError:
    return UserError(
        f"A DistributedDataParallel has find_unused_parameters=True, and torch {torch.__version__} "
        "keeps elsewhere which parameters it has used since it has summed gradients last.",
        means="Accumulated gradients could not be summed as in an undisturbed run after a loss.",
        do="Use torch 2.11 to 2.13, or report the version.",
    )
