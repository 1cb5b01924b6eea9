# SPDX-License-Identifier: Apache-2.0
"""Blocks of memory that tensors and arrays are views of, known by address and size.

The body of a block's node is its content; or its size alone, where somebody else carries that; or,
of a large one, size and digest: it is not copied, but whether it is as it was is known.
"""

import bisect
import ctypes
from collections.abc import Set
from typing import Any, NamedTuple

import numpy
import torch
from torch import UntypedStorage
from xxhash import xxh3_64_intdigest

from trainmover.graph.nodes import Node, Ref, is_left_out, node_ref

BULK_BYTES = 64 << 20
"""Size from which a block is not copied."""

BlockView = tuple[Ref, int]
"""Reference to a block, and offset in bytes from its start."""


class Span(NamedTuple):
    """A range of memory. device: "cpu", or another one, from which bytes must be copied.

    owner  a storage or an array that keeps the memory alive
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
    return bytes_of(span.owner).cpu().numpy().tobytes()


def body_of(span: Span) -> Node:
    """Return the node of a range as it is now."""
    if span.size < BULK_BYTES:
        return "block", content_of(span)
    return "block", span.size, _digest_of(span)


def _digest_of(span: Span) -> int:
    if span.device != "cpu":
        return xxh3_64_intdigest(content_of(span))
    return xxh3_64_intdigest((ctypes.c_ubyte * span.size).from_address(span.start))


def bytes_of(storage: UntypedStorage) -> torch.Tensor:
    """Return a storage as a tensor of bytes."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


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
            if known is None:
                bisect.insort(self._starts, span.start)
            known = self._blocks[span.start] = self.enter(span), span.size
        return node_ref(known[0]), address - span.start

    def enter(self, span: Span) -> int:
        """Return the number of a new node for a range."""
        number = len(self._nodes)
        self._nodes.append(body_of(span))
        self._objects[number] = span.owner
        return number

    def _around(self, span: Span) -> tuple[int, int] | None:
        """Return start and node of a known block that contains this range."""
        before = bisect.bisect(self._starts, span.start) - 1
        if before < 0:
            return None
        start = self._starts[before]
        number, size = self._blocks[start]
        return (start, number) if span.start + span.size <= start + size else None


class BlockRestorer:
    """Blocks as they are filled: each node takes one range of this process's memory.

    carried  addresses of storages here that somebody else fills: no block with a content takes one
    filled  blocks whose memory here held something else
    unlike  sizes of blocks that are not as they were, and were not copied
    missing  sizes of blocks that somebody else carries, and are not here
    """

    def __init__(
        self, nodes: list[tuple[Any, ...]], objects: dict[int, Any], carried: Set[int]
    ) -> None:
        self._nodes, self._objects, self._carried = nodes, objects, carried
        self._storages: dict[int, UntypedStorage] = {}
        self._taken: dict[int, int] = {}
        self.filled: set[int] = set()
        self.unlike: list[int] = []
        self.missing: list[int] = []

    def storage(self, number: int, live: Span | None, device: str = "cpu") -> UntypedStorage:
        """Return the filled storage of a block.

        It is the memory that the block was captured from, in that process; else the live memory if
        its size fits and no other block has taken it; else new memory.
        """
        if number not in self._storages:
            content, size = self._content(number)
            owner = self._objects.get(number)
            span = live if owner is None else _span(owner)
            if owner is None and content is not None and span and span.start in self._carried:
                span = None
            is_here = span is not None and self._may_take(number, span, size)
            if span is not None and is_here:
                found = _storage_of(span)
            else:
                found = torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()
            if content is not None:
                if _fill(found, content):
                    self.filled.add(number)
            elif self.is_left_out(number):
                self.missing += [] if is_here else [size]
            elif self._nodes[number][2:] != (_digest_of(span_of_storage(found)),):
                self.unlike.append(size)
            self._storages[number] = found
            self._taken[found.data_ptr()] = number
        return self._storages[number]

    def is_left_out(self, number: int) -> bool:
        """Tell whether somebody else carries the content of a block."""
        return is_left_out(self._nodes[number])

    def _content(self, number: int) -> tuple[bytes | None, int]:
        """Return the content of a block, None if somebody else carries it, and its size."""
        kind, content, *_ = self._nodes[number]
        if kind != "block":
            raise ValueError(f"node {number} is a {kind} and no block")
        return (None, content) if type(content) is int else (content, len(content))

    def _may_take(self, number: int, span: Span, size: int) -> bool:
        free = self._taken.get(span.start, number) == number
        return bool(span.start) and free and span.size == size


def _span(owner: Any) -> Span:
    return span_of_storage(owner) if isinstance(owner, UntypedStorage) else span_of_array(owner)


def _storage_of(span: Span) -> UntypedStorage:
    """Return a storage over a range, which keeps its owner alive."""
    if isinstance(span.owner, UntypedStorage):
        return span.owner
    memory: Any = (ctypes.c_ubyte * span.size).from_address(span.start)
    memory._owner = span.owner
    return torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()


def _fill(storage: UntypedStorage, content: bytes) -> bool:
    """Write a content; tell whether the memory held another."""
    if storage.device.type != "cpu":
        bytes_of(storage).copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        return True
    is_other = ctypes.string_at(storage.data_ptr(), len(content)) != content
    if is_other:
        ctypes.memmove(storage.data_ptr(), content, len(content))
    return is_other
