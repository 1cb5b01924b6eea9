"""How the bytes of many tensors travel: one stream, cut into checked chunks.

Both ends derive the same cut from the tensors' sizes, so a chunk on the wire is just its checksum
and its payload:

    XXH3-128 of payload (16 bytes) | payload (<= 1 MiB)

A large tensor's chunks lie in its own memory and are sent and received there. Small tensors share a
chunk, which is put together in a buffer.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import xxhash
from torch import Tensor

from trainmover.state import tensor_bytes

CHUNK_BYTES = 1024 * 1024
CHECKSUM_BYTES = 16


class Piece(NamedTuple):
    """Bytes start..stop of a tensor, by its place in the list."""

    tensor: int
    start: int
    stop: int


def cut(sizes: Sequence[int], chunk_bytes: int = CHUNK_BYTES) -> Iterator[list[Piece]]:
    """The chunks of tensors with these sizes in bytes, in order. Empty tensors have no piece.

    >>> list(cut([3, 0, 4, 20], chunk_bytes=10))  # doctest: +NORMALIZE_WHITESPACE
    [[Piece(tensor=0, start=0, stop=3), Piece(tensor=2, start=0, stop=4)],
     [Piece(tensor=3, start=0, stop=10)], [Piece(tensor=3, start=10, stop=20)]]
    """
    chunk: list[Piece] = []
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


def checksum(payload: bytes | bytearray | memoryview) -> bytes:
    return xxhash.xxh3_128_digest(payload)


class Source:
    """Reads chunks out of tensors that nobody writes to meanwhile."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.sizes = [tensor.nbytes for tensor in tensors]
        self._tensors = tensors
        self._flat: tuple[int, Tensor] | None = None  # One at a time: it may be a copy.

    def payload(self, chunk: list[Piece]) -> bytes | memoryview:
        if len(chunk) == 1:
            return self._bytes_of(chunk[0])
        return b"".join(self._bytes_of(piece) for piece in chunk)

    def _bytes_of(self, piece: Piece) -> memoryview:
        if self._flat is None or self._flat[0] != piece.tensor:
            self._flat = piece.tensor, tensor_bytes.flat_bytes(self._tensors[piece.tensor])
        return tensor_bytes.view_bytes(self._flat[1][piece.start : piece.stop])


class Destination:
    """Writes chunks into tensors: `buffer` says where to receive one, `accept` puts it in place.

    A tensor that is contiguous on the CPU receives in its own memory. Any other is filled through a
    buffer: on another device piece by piece, with other strides when its last piece is there.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.sizes = [tensor.nbytes for tensor in tensors]
        self._tensors = tensors
        self._staging = bytearray(CHUNK_BYTES)
        self._flat: tuple[int, Tensor] | None = None

    def buffer(self, chunk: list[Piece]) -> memoryview:
        if len(chunk) == 1 and tensor_bytes.shares_bytes(self._tensors[chunk[0].tensor]):
            piece = chunk[0]
            return tensor_bytes.view_bytes(self._flat_of(piece)[piece.start : piece.stop])
        return memoryview(self._staging)[: sum(piece.stop - piece.start for piece in chunk)]

    def accept(self, chunk: list[Piece], received: memoryview) -> None:
        if received.obj is not self._staging:
            return
        offset = 0
        for piece in chunk:
            end = offset + piece.stop - piece.start
            self._write(piece, received[offset:end])
            offset = end

    @torch.no_grad()
    def _write(self, piece: Piece, data: memoryview) -> None:
        flat, tensor = self._flat_of(piece), self._tensors[piece.tensor]
        flat[piece.start : piece.stop].copy_(torch.frombuffer(data, dtype=torch.uint8))
        if piece.stop == tensor.nbytes and not tensor.is_contiguous():
            tensor.copy_(flat.view(tensor.dtype).view(tensor.shape))

    def _flat_of(self, piece: Piece) -> Tensor:
        if self._flat is None or self._flat[0] != piece.tensor:
            flat = tensor_bytes.flat_bytes(self._tensors[piece.tensor])
            self._flat = piece.tensor, flat
        return self._flat[1]
