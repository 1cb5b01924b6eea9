# SPDX-License-Identifier: Apache-2.0
"""Values that are to be put back where they are: the same tensors, arrays, dicts, lists, deques and
sets, as they were.

Schedulers, compiled code and process groups hold on to these very objects, so none is replaced:
tensors get their old bytes, containers their old entries.
"""

import array
import copy
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any, Union

import numpy
import torch
from torch import Tensor

from trainmover.errors import StateMismatch
from trainmover.state import sets
from trainmover.state.encode import as_local
from trainmover.torch_internals.tensors import copy_all, wrapped_in

_PLAIN = frozenset({float, int, bool, str, type(None)})
_COPIED = (OrderedDict, dict, list, deque)
_CONTAINERS: tuple[Any, ...] = (*_COPIED, set)
MEMORY = (numpy.ndarray, bytearray, array.array)
"""Changed in place, and none of torch's."""
Memory = Union[numpy.ndarray[Any, Any], bytearray, "array.array[Any]"]
_Kind = tuple[torch.Size, tuple[int, ...], torch.dtype]


class Copies:
    """What was added since `begin`. Memory for the copies of tensors is used again and again."""

    def __init__(self) -> None:
        self._tensors: list[tuple[Tensor, Tensor]] = []
        self._containers: list[tuple[Any, Any]] = []
        self._added: dict[int, object] = {}  # Held, so that no other object gets its id.
        self._spare: dict[_Kind, list[Tensor]] = {}

    def __len__(self) -> int:
        """Objects that would be put back."""
        return len(self._added)

    @property
    def nbytes(self) -> int:
        """Of the copied tensors."""
        return sum(held.nbytes for _, held in self._tensors)

    def begin(self) -> None:
        """Forget what was added. Memory that was not in use for it is given up."""
        self._spare = {}
        for _, held in self._tensors:
            self._spare.setdefault(_kind(held), []).append(held)
        self._tensors, self._containers, self._added = [], [], {}

    def add(self, *values: object) -> None:
        """Tensors, and containers of them at any depth; each object counts once."""
        fresh: list[Tensor] = []
        for value in values:
            if type(value) not in _PLAIN:
                self._walk(value, fresh)
        if not fresh:
            return
        lives = [as_local(tensor) for tensor in fresh]
        copies = [self._room_for(live) for live in lives]
        _copy(copies, lives)
        self._tensors += zip(fresh, copies, strict=True)

    def add_container(self, container: dict[Any, Any] | list[Any] | deque[Any] | set[Any]) -> bool:
        """Its entries as they are, without looking into them. False if it was added before."""
        if id(container) in self._added:
            return False
        self._added[id(container)] = container
        plain = type(container) in _COPIED
        self._containers.append((container, container.copy() if plain else _entries(container)))
        return True

    def add_memory(self, memory: Memory) -> None:
        """An array, or bytes that can change."""
        if self._is_new(memory):
            self._containers.append((memory, copy.copy(memory)))

    def put_back(self) -> None:
        """Can be done more than once. Raises StateMismatch if one has another shape by now, in
        which what it held would be spread or cut."""
        # As they are now: a script may have given a tensor other memory meanwhile.
        lives = [as_local(tensor) for tensor, _ in self._tensors]
        for live, (_, held) in zip(lives, self._tensors, strict=True):
            if live.shape != held.shape:
                raise _reshaped(live, held)
        _copy(lives, [held for _, held in self._tensors])
        for container, entries in self._containers:
            _refill(container, entries)

    def _walk(self, value: object, found: list[Tensor]) -> None:
        if type(value) in _PLAIN:
            return
        if isinstance(value, Tensor):
            if self._is_new(value):
                wrapped = wrapped_in(value)
                for one in wrapped:
                    self._walk(one, found)
                found += [] if wrapped else [value]
        elif isinstance(value, (dict, list, deque, set)):
            if self._is_new(value):
                plain = type(value) in _COPIED
                held: Any = value.copy() if plain else _entries(value)
                self._containers.append((value, held))
                if type(held) is sets.Content:
                    held = held.entries
                entries: Iterable[object] = held.values() if isinstance(held, dict) else held
                for entry in entries:
                    self._walk(entry, found)
        elif isinstance(value, MEMORY):
            self.add_memory(value)
            for entry in objects_in(value):
                self._walk(entry, found)
        elif isinstance(value, tuple):
            for entry in value:
                if type(entry) not in _PLAIN:
                    self._walk(entry, found)

    def _is_new(self, value: object) -> bool:
        if id(value) in self._added:
            return False
        self._added[id(value)] = value
        return True

    def _room_for(self, live: Tensor) -> Tensor:
        """In host memory, so that a step takes no more of an accelerator's than without."""
        spare = self._spare.get(_kind(live))
        if spare:
            return spare.pop()
        pinned = live.device.type == "cuda"
        return torch.empty_like(live, device="cpu", pin_memory=pinned)


def _reshaped(live: Tensor, held: Tensor) -> StateMismatch:
    return StateMismatch(
        f"it has given a tensor the shape {list(live.shape)}, which had {list(held.shape)}.",
        means="What it held cannot be put back.",
        do="Make another tensor instead of giving one another shape, or keep it as a buffer of a "
        "tracked module.",
    )


def objects_in(memory: Memory) -> list[Any]:
    """Of an array of objects, as lists or arrays of several lengths."""
    is_of_objects = isinstance(memory, numpy.ndarray) and memory.dtype == object
    return memory.reshape(-1).tolist() if is_of_objects else []  # type: ignore[union-attr]


def _kind(tensor: Tensor) -> _Kind:
    return tensor.shape, tensor.stride(), tensor.dtype


def _copy(into: list[Tensor], values: list[Tensor]) -> None:
    """On an accelerator in the order of its stream, so that nobody need wait."""
    if into:
        with torch.no_grad():
            copy_all(into, values, non_blocking=True)


def _entries(container: Any) -> Any:
    """Of one of a class that is made out of one of Python's, too: none of its own code is run."""
    base = _base_of(container)
    if base is set:
        return sets.content_of(container)
    if issubclass(base, dict):
        return dict(base.items(container))
    return base(base.__iter__(container))


def _refill(container: Any, entries: Any) -> None:
    if isinstance(container, numpy.ndarray):
        if container.flags.writeable:
            container[...] = entries
    elif isinstance(entries, sets.Content):
        sets.put_in(container, entries)
    elif base := _base_of(container):
        base.clear(container)
        (base.update if issubclass(base, dict) else base.extend)(container, entries)
    else:
        container[:] = entries


def _base_of(container: object) -> Any:
    """None of memory."""
    return next((one for one in _CONTAINERS if isinstance(container, one)), None)
