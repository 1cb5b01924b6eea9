# SPDX-License-Identifier: Apache-2.0
"""Tensors and arrays: views of blocks of memory.

A block is known by its address, so views, aliases and arrays over a tensor's memory go on sharing
it. Restoring fills the live block where the size fits, whoever else refers to it.
"""

import functools
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from trainmover.graph.blocks import BlockView, bytes_of, span_of_array, span_of_storage
from trainmover.graph.kinds.kind import HOLE, MISSING, Body, Kind, item
from trainmover.graph.nodes import LEFT_OUT, Node, Path, Ref, node_number
from trainmover.state.tensor_bytes import DTYPES, dtype_name
from trainmover.torch_internals.objects import HOOKS_OF_LEAVES, set_local, subclass_of
from trainmover.torch_internals.tensors import coordinates_of, is_view, local_of, values_of

if TYPE_CHECKING:
    from trainmover.graph.restore import Restore
    from trainmover.graph.walk import Walk


class StridedTensor(Kind):
    """A dense tensor: form, view of a block, gradient, attributes, hooks."""

    name = "tensor"

    @staticmethod
    def takes(obj: Any) -> bool:
        """Tell whether a tensor is a view of one block of memory."""
        return obj.layout is torch.strided and obj.dtype in _NAMED and obj.device.type != "meta"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        leaf = obj.is_leaf
        if not leaf:
            walk.keeps_graph(obj, path)
        rest: dict[str, Any] = {}
        gradient = walk.gradient(obj, path) if leaf else None
        if gradient is not None:
            rest["grad"] = gradient
        if obj.__dict__:
            rest["dict"] = walk.ref(obj.__dict__, path, ".__dict__")
        for name in HOOKS_OF_LEAVES if leaf else ():
            if getattr(obj, name, None):
                rest[name] = walk.ref(getattr(obj, name), path, f".{name}")
        span = span_of_storage(obj.untyped_storage())
        view = walk.block(span, obj.data_ptr() if obj.numel() else 0)
        form = (dtype_name(obj.dtype), tuple(obj.shape), tuple(obj.stride()), str(obj.device))
        return (
            walk.class_ref(type(obj), path),
            form,
            leaf,
            leaf and obj.requires_grad,
            view,
            rest,
        )

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        kind, form, leaf, needs_grad, view, rest = body
        cls = restore.cls(kind, live)
        if leaf and restore.is_own(ref, live) and not live.is_leaf and not is_view(live):
            live.detach_()  # Changed in place by what is trained, it is a part of that graph.
        dtype, shape, stride = DTYPES[form[0]], tuple(form[1]), tuple(form[2])
        fits = (
            type(live) is cls
            and live.layout is torch.strided
            and live.dtype is dtype
            and live.is_leaf == leaf
            and restore.is_free(live, ref)
        )
        with torch.no_grad():
            live = _over_block(live, fits, cls, (dtype, shape, stride), view, form[3], restore)
            if view and node_number(view[0]) in restore.blocks.filled and not live.is_inference():
                increment_version(live)  # Who knows it by its counter is to read it again.
        restore.take(ref, live)
        if leaf and live.is_leaf and live.requires_grad != needs_grad:
            live.requires_grad_(needs_grad)
        if leaf:
            _restore_grad(live, rest, restore)
            _restore_hooks(live, rest, restore)
        if "dict" in rest:
            restore.get(rest["dict"], live.__dict__)
        elif live.__dict__:
            live.__dict__.clear()
        return live


_NAMED = frozenset(DTYPES.values())


def _over_block(
    live: Any,
    fits: bool,
    cls: Any,
    form: tuple[torch.dtype, tuple[int, ...], tuple[int, ...]],
    view: BlockView | None,
    device: str,
    restore: "Restore",
) -> Tensor:
    """Return a tensor of this form over its block, which has its content afterwards."""
    dtype, shape, stride = form
    if view is None:
        if fits and tuple(live.shape) == shape:
            return live  # type: ignore[no-any-return]
        return _with_memory(live, fits, cls, torch.empty_strided(shape, stride, dtype=dtype))
    number, offset = node_number(view[0]), view[1]
    is_others = restore.blocks.is_left_out(number) and not restore.is_of_this_run
    if fits and is_others and tuple(live.shape) == shape:
        return live  # type: ignore[no-any-return]
    span = span_of_storage(live.untyped_storage()) if fits else None
    held = restore.blocks.storage(number, span, device)
    if span is not None and held.data_ptr() == span.start:
        at = live.data_ptr() - span.start if live.numel() else offset
        if (at, tuple(live.shape), tuple(live.stride())) == (offset, shape, stride):
            return live  # type: ignore[no-any-return]
    start = offset // dtype.itemsize
    view_of = torch.empty(0, dtype=dtype, device=held.device).set_(held, start, shape, stride)
    return _with_memory(live, fits, cls, view_of)


def _with_memory(live: Any, fits: bool, cls: Any, memory: Tensor) -> Tensor:
    if fits and live.is_leaf:
        live.data = memory
        return live  # type: ignore[no-any-return]
    if cls is Tensor:
        return memory
    made: Tensor = subclass_of(cls, memory)
    return made


def _restore_grad(live: Any, rest: dict[str, Ref], restore: "Restore") -> None:
    grad = None
    if rest.get("grad") == LEFT_OUT:
        return
    if "grad" in rest:
        grad = restore.get(rest["grad"], MISSING if live.grad is None else live.grad)
    if grad is not live.grad and grad is not HOLE:
        live.grad = grad


def _restore_hooks(live: Any, rest: dict[str, Ref], restore: "Restore") -> None:
    for name in HOOKS_OF_LEAVES:
        old = getattr(live, name, None)
        new = restore.get(rest[name], MISSING if old is None else old) if name in rest else None
        if new is not old and new is not HOLE and (new or old):
            setattr(live, name, new)


class SparseTensor(Kind):
    """A tensor of coordinates and values."""

    name = "sparse-tensor"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        return (
            walk.ref(coordinates_of(obj), path, ".<indices>"),
            walk.ref(values_of(obj), path, ".<values>"),
            tuple(obj.shape),
            obj.is_coalesced(),
            obj.requires_grad,
        )

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        indices, values, shape, coalesced, needs_grad = body
        at, entries = restore.get(indices).clone(), restore.get(values).clone()
        new = torch.sparse_coo_tensor(
            at, entries, tuple(shape), is_coalesced=coalesced, check_invariants=False
        )
        is_sparse = isinstance(live, Tensor) and live.layout is torch.sparse_coo
        if is_sparse and restore.is_free(live, ref):
            with torch.no_grad():
                live.data = new
            return restore.take(ref, live)
        return restore.take(ref, new.requires_grad_(needs_grad))


class ShardedTensor(Kind):
    """A DTensor: its local part and gradient. Its layout follows from the mesh of the process."""

    name = "sharded-tensor"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        grad = walk.gradient(obj, path) if obj.is_leaf else None
        return (
            walk.ref(type(obj), path, ".<type>"),
            walk.ref(local_of(obj), path, ".<local>"),
            (None,) if grad is None else grad,
        )

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        kind, local, grad = body
        if type(live) is not restore.cls(kind, live) or not restore.is_free(live, ref):
            return HOLE
        restore.take(ref, live)
        old = local_of(live)
        part = restore.get(local, old)
        if part is not old and part is not HOLE:
            set_local(live, part)
        if live.is_leaf and grad != LEFT_OUT:
            new = restore.get(grad, MISSING if live.grad is None else live.grad)
            if new is not live.grad and new is not HOLE:
                live.grad = new
        return live


class ScriptedModule(Kind):
    """A module of TorchScript, whose tensors lie in C++."""

    name = "scripted-module"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        tensors = [*obj.named_parameters(), *obj.named_buffers()]
        return (
            walk.ref(type(obj), path, ".<type>"),
            {name: walk.ref(one, path, f".{name}") for name, one in tensors},
            obj.training,
        )

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        kind, tensors, training = body
        if type(live) is not restore.cls(kind, live) or not restore.is_free(live, ref):
            return HOLE
        restore.take(ref, live)
        mine = dict([*live.named_parameters(), *live.named_buffers()])
        for name, one in tensors.items():
            new = restore.get(one, mine.get(name, MISSING))
            if new is not mine.get(name) and new is not HOLE:
                *parts, attribute = name.split(".")
                setattr(functools.reduce(getattr, parts, live), attribute, new)
        live.train(training)
        return live


class Array(Kind):
    """A numpy array: form and view of a block."""

    name = "array"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        view = walk.block(span_of_array(obj), obj.ctypes.data if obj.size else 0)
        dtype = numpy.lib.format.dtype_to_descr(obj.dtype)
        return dtype, tuple(obj.shape), tuple(obj.strides), bool(obj.flags.writeable), view

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        descr, shape, strides, writeable, view = body
        dtype, shape, strides = _dtype(descr), tuple(shape), tuple(strides)
        fits = type(live) is numpy.ndarray and restore.is_free(live, ref) and live.dtype == dtype
        if view is None:
            same = fits and live.shape == shape
            return restore.take(ref, live if same else numpy.empty(shape, dtype))
        number, offset = node_number(view[0]), view[1]
        storage = restore.blocks.storage(number, span_of_array(live) if fits else None)
        at = live.ctypes.data - storage.data_ptr() if fits and live.size else -1
        if not fits or (at, live.shape, live.strides) != (offset, shape, strides):
            live = numpy.ndarray(shape, dtype, bytes_of(storage).numpy(), offset, strides)
        if live.flags.writeable != writeable:
            live.setflags(write=writeable)
        return restore.take(ref, live)


_VIEW = 5
"""Position of the view in the node of a tensor or an array."""


def view_in(node: Node) -> tuple[int, int] | None:
    """Return the block and the offset of the view in a node; None for a node without one."""
    if node[0] not in (StridedTensor.name, Array.name) or node[_VIEW] is None:
        return None
    block, offset = node[_VIEW]
    return node_number(block), offset


def without_view(node: Node) -> Node:
    """Return the node of a tensor or an array without its view."""
    return (*node[:_VIEW], None, *node[_VIEW + 1 :])


def seen_bytes(node: Node, nodes: list[Node]) -> bytes | None:
    """Return the part of its block that a tensor or an array sees; None where none was copied.

    Memory of a block that no view sees is often never written to, and differs by chance.
    """
    view = view_in(node)
    if view is None:
        return None
    number, offset = view
    content = nodes[number][1]
    if node[0] == StridedTensor.name:
        shape, size = node[2][1], DTYPES[node[2][0]].itemsize
        strides = [size * one for one in node[2][2]]
    else:
        shape, strides, size = node[2], node[3], _dtype(node[1]).itemsize
    if not isinstance(content, bytes) or 0 in shape:
        return None
    reach = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
    first = offset + sum(one for one in reach if one < 0)
    return content[first : offset + sum(one for one in reach if one > 0) + size]


def _dtype(descr: Any) -> "numpy.dtype[Any]":
    return numpy.lib.format.descr_to_dtype(_as_descr(descr))


def _as_descr(descr: Any) -> Any:
    """Return a description of a dtype with tuples where numpy wants them."""
    if isinstance(descr, list):
        return [tuple(_as_descr(part) for part in one) for one in descr]
    return descr


class ObjectArray(Kind):
    """A numpy array of Python objects."""

    name = "object-array"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        return tuple(obj.shape), [walk.ref(one, path, item(n)) for n, one in enumerate(obj.flat)]

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        shape, items = body
        known = type(live) is numpy.ndarray and live.dtype == object and live.shape == tuple(shape)
        if not known or not restore.is_free(live, ref):
            live = numpy.empty(tuple(shape), object)
        restore.take(ref, live)
        old = [*live.flat]
        for number, one in enumerate(items):
            new = restore.get(one, old[number])
            if new is not old[number] and new is not HOLE:
                live.flat[number] = new
        return live
