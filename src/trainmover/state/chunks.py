# SPDX-License-Identifier: Apache-2.0
"""How the bytes of many tensors travel: cut into chunks, each of which can be asked for and checked
by itself.

Both ends derive the same cut from the sizes of the tensors that are to travel, so a chunk is known
by its number. A large tensor's chunks lie in its own memory and are sent and received there. Small
tensors share a chunk, which is put together in a buffer; so are pieces of tensors that are not
contiguous on the CPU.
"""

from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

import xxhash
from torch import Tensor

from trainmover.state import tensor_bytes

CHUNK_BYTES = 1024 * 1024
"""Small enough that what is hashed before it is sent, or once it has come, is still in the cache of
the processor; in smaller parts several threads wait for each other more than that saves."""
CHECKSUM_BYTES = 16


class Piece(NamedTuple):
    """Bytes start..stop of a tensor, by its place in the list."""

    tensor: int
    start: int
    stop: int


Chunk = list[Piece]


def cut(sizes: Sequence[int], chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """The chunks of tensors with these sizes in bytes, in order. Empty tensors have no piece.

    >>> list(cut([3, 0, 4, 20], chunk_bytes=10))  # doctest: +NORMALIZE_WHITESPACE
    [[Piece(tensor=0, start=0, stop=3), Piece(tensor=2, start=0, stop=4)],
     [Piece(tensor=3, start=0, stop=10)], [Piece(tensor=3, start=10, stop=20)]]
    """
    chunk: Chunk = []
    room = chunk_bytes
    for index, size in enumerate(sizes):
        if chunk and size > room:
            yield chunk
            chunk, room = [], chunk_bytes
        for start in range(0, size, chunk_bytes):
            stop = min(start + chunk_bytes, size)
            chunk.append(Piece(index, start, stop))
            room -= stop - start
            if room == 0:
                yield chunk
                chunk, room = [], chunk_bytes
    if chunk:
        yield chunk


def without(sizes: Sequence[int], tensors: Container[int]) -> list[int]:
    """Sizes from which `cut` makes chunks that have nothing of these tensors.

    >>> without([3, 4, 20], {0, 2})
    [0, 4, 0]
    """
    return [0 if number in tensors else size for number, size in enumerate(sizes)]


def length(chunk: Chunk) -> int:
    """In bytes."""
    return sum(piece.stop - piece.start for piece in chunk)


def checksum(number: int, payload: bytes | memoryview) -> bytes:
    """Of a chunk's bytes. The chunk's number is the seed: no chunk passes for another."""
    return xxhash.xxh3_128_digest(payload, seed=number)


class Source:
    """Reads chunks out of tensors that nobody writes to meanwhile. Any thread may ask."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.sizes = [tensor.nbytes for tensor in tensors]
        self._views = _Views(tensors)

    def payload(self, chunk: Chunk) -> bytes | memoryview:
        """A chunk's bytes, which are not copied if they lie in one tensor's memory."""
        if len(chunk) == 1:
            return self._views.read(chunk[0])
        return b"".join(self._views.read(piece) for piece in chunk)


class Destination:
    """Writes chunks into tensors, in any order: `buffer` says where to receive one, `accept` puts
    it in place. Several threads may do so, each with a different chunk and its own staging.

    kept: tensors that do not travel, by their place in the list
    """

    def __init__(self, tensors: Sequence[Tensor], kept: Container[int] = ()) -> None:
        self.chunks = list(cut(without([tensor.nbytes for tensor in tensors], kept)))
        self._views = _Views(tensors)

    def buffer(self, number: int, staging: bytearray) -> memoryview:
        """The tensor's own memory if the chunk lies in one that is contiguous on the CPU."""
        chunk = self.chunks[number]
        if len(chunk) == 1:
            memory = self._views.memory(chunk[0].tensor)
            if memory is not None:
                return memory[chunk[0].start : chunk[0].stop]
        return memoryview(staging)[: length(chunk)]

    def accept(self, number: int, received: memoryview, staging: bytearray) -> None:
        """The bytes received in a `buffer` are right."""
        if received.obj is not staging:
            return
        offset = 0
        for piece in self.chunks[number]:
            end = offset + piece.stop - piece.start
            self._views.write(piece, received[offset:end])
            offset = end


class _Views:
    """Bytes of tensors by piece; whole tensors are looked at once."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self._memory: dict[int, memoryview] = {}

    def memory(self, index: int) -> memoryview | None:
        """A tensor's own bytes; None if they do not lie in the CPU's memory in logical order."""
        found = self._memory.get(index)
        tensor = self._tensors[index]
        if found is None and tensor_bytes.shares_bytes(tensor):
            found = self._memory[index] = tensor_bytes.view_bytes(tensor)
        return found

    def read(self, piece: Piece) -> memoryview:
        memory = self.memory(piece.tensor)
        if memory is not None:
            return memory[piece.start : piece.stop]
        return tensor_bytes.read_range(self._tensors[piece.tensor], piece.start, piece.stop)

    def write(self, piece: Piece, data: memoryview) -> None:
        memory = self.memory(piece.tensor)
        if memory is not None:
            memory[piece.start : piece.stop] = data
        else:
            tensor_bytes.write_range(self._tensors[piece.tensor], piece.start, data)
