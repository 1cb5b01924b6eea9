# SPDX-License-Identifier: Apache-2.0
"""Blocks of memory that tensors and arrays are views of, known by address and size."""

import bisect
import ctypes
from typing import Any, NamedTuple

import numpy
import torch
from torch import UntypedStorage

from trainmover.graph.nodes import Ref, node_ref

BlockView = tuple[Ref, int]
"""Reference to a block, and offset in bytes from its start."""


class Span(NamedTuple):
    """A range of memory. device: "cpu", or another one, from which bytes must be copied.

    owner  keeps the memory alive
    """

    start: int
    size: int
    owner: Any
    device: str


def span_of_storage(storage: UntypedStorage) -> Span:
    """Return the range of a tensor's storage."""
    return Span(storage.data_ptr(), storage.nbytes(), storage, storage.device.type)


def span_of_array(array: "numpy.ndarray[Any, Any]") -> Span:
    """Return the range of the memory that an array is a view of, a tensor's storage included."""
    owner: Any = array
    while isinstance(owner.base, numpy.ndarray):
        owner = owner.base
    if isinstance(owner.base, torch.Tensor):
        return span_of_storage(owner.base.untyped_storage())
    start, end = numpy.lib.array_utils.byte_bounds(owner)
    return Span(start, end - start, owner, "cpu")


def content_of(span: Span) -> bytes:
    """Return a copy of a range."""
    if span.device == "cpu":
        return ctypes.string_at(span.start, span.size)
    on_host = torch.empty(0, dtype=torch.uint8, device=span.owner.device).set_(span.owner).cpu()
    return on_host.numpy().tobytes()


class BlockReader:
    """Blocks that a walk has met: two views of one block share its node."""

    def __init__(self, nodes: list[tuple[Any, ...]], objects: dict[int, Any]) -> None:
        self._nodes, self._objects = nodes, objects
        self._blocks: dict[int, tuple[int, int]] = {}
        self._starts: list[int] = []

    def view(self, span: Span, address: int) -> BlockView | None:
        """Return where an address lies; None for memory of no size."""
        if not span.size or not address:
            return None
        known = self._blocks.get(span.start)
        if known is None or known[1] < span.size:
            outer = None if known is not None else self._around(span)
            if outer is not None:
                start, number = outer
                return node_ref(number), address - start
            known = len(self._nodes), span.size
            self._nodes.append(("block", content_of(span)))
            self._objects[known[0]] = span.owner
            self._blocks[span.start] = known
            bisect.insort(self._starts, span.start)
        return node_ref(known[0]), address - span.start

    def _around(self, span: Span) -> tuple[int, int] | None:
        """Return start and node of a known block that contains this range."""
        before = bisect.bisect(self._starts, span.start) - 1
        if before < 0:
            return None
        start = self._starts[before]
        number, size = self._blocks[start]
        return (start, number) if span.start + span.size <= start + size else None


class BlockRestorer:
    """Blocks as they are filled: each node takes one range of this process's memory."""

    def __init__(self, nodes: list[tuple[Any, ...]], objects: dict[int, Any]) -> None:
        self._nodes, self._objects = nodes, objects
        self._storages: dict[int, UntypedStorage] = {}
        self._arrays: dict[int, Any] = {}
        self._taken: dict[int, int] = {}

    def storage(
        self, number: int, live: UntypedStorage | None, device: str = "cpu"
    ) -> UntypedStorage:
        """Return the filled storage of a block: the live one if its size fits and it is free."""
        if number in self._storages:
            return self._storages[number]
        if number in self._arrays:
            found = torch.from_numpy(self._arrays[number]).untyped_storage()
        else:
            content = self._content(number)
            owner = self._objects.get(number, live)
            live = owner if isinstance(owner, UntypedStorage) else live
            if live is not None and self._may_take(number, live.data_ptr(), live.nbytes()):
                found = live
            else:
                found = torch.empty(
                    len(content), dtype=torch.uint8, device=device
                ).untyped_storage()
            _fill(found, content)
        self._storages[number] = found
        self._taken[found.data_ptr()] = number
        return found

    def memory(self, number: int, live: Any) -> Any:
        """Return the filled block as an array of bytes: the live array's memory if that fits."""
        if number not in self._arrays:
            self._arrays[number] = self._memory(number, live)
        return self._arrays[number]

    def _memory(self, number: int, live: Any) -> Any:
        if number in self._storages:
            return _as_array(self._storages[number])
        content = self._content(number)
        span = self._span(self._objects.get(number, live))
        if span is not None and self._may_take(number, span.start, span.size):
            self._taken[span.start] = number
            if isinstance(span.owner, UntypedStorage):
                return _as_array(self.storage(number, span.owner))
            ctypes.memmove(span.start, content, span.size)
            return _bytes_at(span)
        made = numpy.frombuffer(bytearray(content), numpy.uint8)
        self._taken[made.ctypes.data] = number
        return made

    @staticmethod
    def _span(owner: Any) -> Span | None:
        """Return the range of a storage or an array."""
        if isinstance(owner, UntypedStorage):
            return span_of_storage(owner)
        return None if owner is None else span_of_array(owner)

    def _content(self, number: int) -> bytes:
        kind, content = self._nodes[number]
        if kind != "block":
            raise ValueError(f"node {number} is a {kind} and no block")
        return content  # type: ignore[no-any-return]

    def _may_take(self, number: int, start: int, size: int) -> bool:
        free = self._taken.get(start, number) == number
        return bool(start) and free and size == len(self._content(number))


def _fill(storage: UntypedStorage, content: bytes) -> None:
    if storage.device.type == "cpu":
        if ctypes.string_at(storage.data_ptr(), len(content)) != content:
            ctypes.memmove(storage.data_ptr(), content, len(content))
        return
    source = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    target = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    target.copy_(source)


def _as_array(storage: UntypedStorage) -> Any:
    return torch.empty(0, dtype=torch.uint8).set_(storage).numpy()


def _bytes_at(span: Span) -> Any:
    """Return an array of bytes over a range, which keeps its owner alive."""
    memory: Any = (ctypes.c_ubyte * span.size).from_address(span.start)
    memory._owner = span.owner
    return numpy.frombuffer(memory, numpy.uint8)
