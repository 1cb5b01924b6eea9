# SPDX-License-Identifier: Apache-2.0
"""What a step is called with, as it was, for another try: the same objects in every one, since the
caller has them too.

A step may normalise its batch in place, pop a label from it, cross off what is done in a list of
it; so what a batch holds is kept, at any depth: tensors, arrays, containers, and objects of the
script's or a library's classes. But a step is also called with objects that live on, as `self`, a
trainer or a state: they were arguments before the last fetch, too. Of these only the attributes and
the tensors that they are is kept here: what lies deeper is a variable of the script's.
"""

import array
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable
from types import FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ref

import numpy
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainmover.state import tensor_bytes
from trainmover.state.class_files import PLAIN, module_of
from trainmover.state.held import held_by, slots_in
from trainmover.torch_internals.tensors import version_of
from trainmover.worker.step.retry.copies import MEMORY, Copies, objects_in
from trainmover.worker.step.retry.copies import Memory as InPlace
from trainmover.worker.step.retry.leaves import Leaves

BYTES_MAX = 64 * 1024 * 1024
OBJECTS_MAX, ENTRIES_MAX, DEEPEST = 2048, 65536, 12
"""Within objects, which may be a trainer that has all of its data: how many of one call, how many
entries of a container, and how many attributes and entries one lies behind."""
CONTAINERS = (list, dict, deque, set)
_TRAINED = (nn.Module, Optimizer, LRScheduler, ReduceLROnPlateau, GradScaler)
NO_BATCH = (*_TRAINED, type, FunctionType, MethodType, ModuleType)
_OF_DATA = frozenset({"collections", "types", "argparse"})
"""Of Python's own modules those whose objects hold values, and nothing that runs."""
_OTHERS = (sys.stdlib_module_names - _OF_DATA) | {"torch", "trainmover"}
_Geometry = tuple[int, torch.Size, tuple[int, ...], torch.dtype]


def nbytes(value: "Tensor | InPlace") -> float:
    """What a copy would take; of a sparse tensor and its kin nobody can tell."""
    if isinstance(value, Tensor):
        return value.nbytes if tensor_bytes.is_plain(value) else math.inf
    if isinstance(value, numpy.ndarray):
        return value.nbytes
    return len(value) * (value.itemsize if isinstance(value, array.array) else 1)


class Living:
    """Objects that steps were called with before the last fetch. One for all steps."""

    def __init__(self) -> None:
        self._before: dict[int, ref[Any]] = {}
        self._now: dict[int, ref[Any]] = {}

    def fetched(self) -> None:
        """What a step is called with from here on may have come now."""
        if self._now:
            self._before, self._now = self._now, {}

    def saw(self, value: object) -> bool:
        """Whether a step before the last fetch had it; this one has."""
        try:
            self._now[id(value)] = ref(value)
        except TypeError:
            return False
        before = self._before.get(id(value))
        return before is not None and before() is value


_OF_PYTHON = frozenset((tuple, *CONTAINERS))


class Arguments:
    """Of one call.

    uncopied  tensors that are too large to be copied, or belong to a graph, and their versions:
              they must not change
    """

    def __init__(
        self,
        living: Living,
        leaves: Leaves,
        large: Callable[[object], None],
    ) -> None:
        """large: gets memory that is too large: it must not change"""
        self.uncopied: list[tuple[Tensor, int]] = []
        self._living, self._leaves = living, leaves
        self._note_large = large
        self._tensors: list[tuple[Tensor, Tensor, _Geometry]] = []
        self._slots: list[tuple[object, dict[str, Any]]] = []
        self._kept = Copies()
        self._seen: dict[int, object] = {}
        self._bytes_inside = 0.0  # Of what lies deeper in objects.

    def keep(self, args: Iterable[Any], kwargs: dict[str, Any]) -> None:
        """As they are now."""
        for value in (*args, *kwargs.values()):
            if type(value) is Tensor:  # The usual case: one call less.
                self._keep_tensor(value, 0)
            else:
                self._keep(value, 0)

    def put_back(self) -> None:
        """Can be done more than once."""
        self._kept.put_back()
        for owner, values in self._slots:
            for name in slots_in(owner).keys() - values.keys():
                object.__delattr__(owner, name)
            for name, value in values.items():
                object.__setattr__(owner, name, value)
        for tensor, held, geometry in self._tensors:
            with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                if _geometry(tensor) != geometry:  # `x.unsqueeze_(1)`, or other memory.
                    tensor.data = held.clone()
                elif not torch.equal(tensor, held):  # It may lie in memory that can only be read.
                    tensor.copy_(held)

    def _keep(self, value: Any, depth: int) -> None:
        """depth: in an object, 0: in none"""
        if type(value) in PLAIN:
            return
        if isinstance(value, Tensor):
            self._keep_tensor(value, depth)
        elif isinstance(value, MEMORY):
            if self._size(value, depth) > BYTES_MAX:
                self._note_large(value)
            else:
                self._kept.add_memory(value)
                for entry in objects_in(value):
                    self._keep(entry, depth + 1)
        elif isinstance(value, (tuple, *CONTAINERS)):
            self._keep_entries(value, depth)
            if type(value) not in _OF_PYTHON:  # It may have attributes beside its entries.
                self._keep_object(value, depth)
        else:
            self._keep_object(value, depth)

    def _keep_tensor(self, tensor: Tensor, depth: int) -> None:
        if id(tensor) in self._seen:
            return
        self._seen[id(tensor)] = tensor
        self._leaves.add(tensor)
        if held := held_by(tensor):
            self._kept.add_container(held)
            for one in held.values():
                self._keep(one, depth + 1)
        if tensor.requires_grad or self._size(tensor, depth) > BYTES_MAX:
            self.uncopied.append((tensor, version_of(tensor)))
        elif type(tensor) is not Tensor:  # It may wrap others.
            self._kept.add(tensor)
        elif 0 not in (steps := tensor.stride()) or not _is_repeated(tensor):
            where = tensor.data_ptr(), tensor.shape, steps, tensor.dtype
            self._tensors.append((tensor, tensor.detach().clone(), where))

    def _size(self, value: "Tensor | InPlace", depth: int) -> float:
        """Its own; deep in an object, of all there so far."""
        size = nbytes(value)
        if depth > 1:
            self._bytes_inside = size = self._bytes_inside + size
        return size

    def _keep_entries(self, value: Any, depth: int) -> None:
        if depth and len(value) > ENTRIES_MAX:
            return
        if not isinstance(value, tuple) and not self._kept.add_container(value):
            return
        entries = value.values() if isinstance(value, dict) else value
        too_many = len(self._seen) + len(value) > OBJECTS_MAX or depth >= DEEPEST
        if not (depth and too_many) and not {*map(type, entries)} <= PLAIN:
            for entry in entries:
                self._keep(entry, depth and depth + 1)

    def _keep_object(self, value: object, depth: int) -> None:
        if isinstance(value, NO_BATCH) or id(value) in self._seen:
            return
        is_others = module_of(type(value)).partition(".")[0] in _OTHERS
        if is_others and depth:
            return
        self._seen[id(value)] = value
        held, slots = held_by(value), {} if is_others else slots_in(value)
        if slots:
            self._slots.append((value, slots))
        if held:
            self._kept.add_container(held)
        lives = self._living.saw(value) or is_others
        shallow = lives or depth >= DEEPEST or len(self._seen) > OBJECTS_MAX
        for one in (*held.values(), *slots.values()):
            trained = isinstance(one, Tensor) and one.requires_grad
            if not trained and (not shallow or isinstance(one, (Tensor, *MEMORY))):
                self._keep(one, depth + 1)


def _geometry(tensor: Tensor) -> _Geometry:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _is_repeated(tensor: Tensor) -> bool:
    """Whether several of its elements are one in memory: nothing writes to it then."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return any(step == 0 and size > 1 for size, step in steps)
