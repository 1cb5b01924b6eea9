# SPDX-License-Identifier: Apache-2.0
"""Kinds of nodes, and which one describes an object. The first rule that fits counts."""

import enum
import functools
import types
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from trainmover.graph import layout
from trainmover.graph.kinds import code, containers, iterators, loop, memory, stateful
from trainmover.graph.kinds.assembled import ASSEMBLED
from trainmover.graph.kinds.handle import Handle, is_handle
from trainmover.graph.kinds.kind import HOLE, MISSING, Body, Kind
from trainmover.graph.kinds.positioned import PositionedIterator, is_positioned
from trainmover.graph.kinds.stateful import STATEFUL
from trainmover.graph.nodes import Path
from trainmover.state.class_caches import cached_by_class

if TYPE_CHECKING:
    from trainmover.graph.restore import Restore
    from trainmover.graph.walk import Walk


class OpaqueObject(Kind):
    """An object that cannot be carried: each process keeps its own."""

    name = "opaque"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        walk.is_opaque(obj, path)
        return type(obj).__module__, type(obj).__qualname__

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        module, name = body
        if (type(live).__module__, type(live).__qualname__) != (module, name):
            return HOLE
        return live if live is MISSING else restore.take(ref, live)


_OPAQUE = OpaqueObject()
_INSTANCE = containers.Instance()
_ALL: tuple[Kind, ...] = (
    *(_OPAQUE, _INSTANCE, containers.Tuple(), containers.FrozenSet()),
    *(containers.Error(), containers.Member(), containers.Data()),
    *(code.Function(), code.Cell(), code.Partial(), code.Class(), code.Module(), code.Code()),
    *(iterators.Iterator(), iterators.Generator(), loop.LoopIterator()),
    *(loop.Twin(), Handle(), PositionedIterator()),
    *(memory.StridedTensor(), memory.SparseTensor(), memory.ShardedTensor()),
    *(memory.ScriptedModule(), memory.Array(), memory.ObjectArray()),
    *(stateful.BitGenerator(), stateful.SeedSequence()),
    *ASSEMBLED,
    *STATEFUL,
)
KINDS: dict[str, Kind] = {one.name: one for one in _ALL}

_BY_TYPE: dict[type, str] = {
    types.CodeType: "code",
    types.FunctionType: "function",
    types.CellType: "cell",
    functools.partial: "partial",
    types.GeneratorType: "generator",
    tuple: "tuple",
    frozenset: "frozenset",
    types.SimpleNamespace: "object",
    **dict.fromkeys(iterators.TYPES, "iterator"),
    **dict.fromkeys(loop.TYPES, "loop"),
    **dict.fromkeys(loop.TWINS, "twin"),
    **{cls: one.name for one in ASSEMBLED for cls in one.types},
    **{one.type: one.name for one in STATEFUL},
}

_BY_BASE: tuple[tuple[type, str], ...] = (
    (torch.Generator, "torch-generator"),
    (numpy.random.BitGenerator, "numpy-bit-generator"),
    (numpy.random.SeedSequence, "numpy-seed-sequence"),
    (numpy.random.RandomState, "numpy-random-state"),
    (type, "class"),
    (types.ModuleType, "module"),
    (enum.Enum, "enum"),
    (torch.jit.ScriptModule, "scripted-module"),
)


def kind_for(obj: Any) -> Kind:
    """Return the kind that describes an object."""
    if isinstance(obj, Tensor):
        return _tensor_kind(obj)
    if type(obj) is numpy.ndarray:
        return KINDS["object-array" if obj.dtype.hasobject else "array"]
    cls: Any = type(obj)
    kind = _kind_of_type(cls)
    if kind.name.startswith("stream-") and obj.closed:
        return _OPAQUE
    if kind is _OPAQUE and stateful.is_read_stream(obj):
        return KINDS["read-stream"]
    return kind


def _tensor_kind(obj: Any) -> Kind:
    if type(obj).__name__ == "FakeTensor" or is_lazy(obj):
        return _OPAQUE
    if hasattr(obj, "device_mesh"):
        return KINDS["sharded-tensor"]
    if obj.layout is torch.sparse_coo:
        return KINDS["sparse-tensor"]
    return KINDS["tensor"] if memory.StridedTensor.takes(obj) else _OPAQUE


@cached_by_class
def _kind_of_type(cls: Any) -> Kind:
    name = "handle" if is_handle(cls) else "positioned" if is_positioned(cls) else _BY_TYPE.get(cls)
    if name is None:
        name = next((name for base, name in _BY_BASE if issubclass(cls, base)), None)
    if name is not None:
        return KINDS[name]
    base = layout.solid_base(cls)
    if base is None or layout.is_runtime(cls):
        return _OPAQUE
    if issubclass(cls, BaseException):
        return KINDS["exception"]
    if base is tuple:
        return KINDS["tuple"]
    return _INSTANCE if layout.is_described(cls) else _OPAQUE
