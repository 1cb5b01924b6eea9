# SPDX-License-Identifier: Apache-2.0
"""A rank's state as it was at one boundary: one block of host memory, ready to be kept elsewhere.

    tensors, each at a multiple of 64 bytes | trailer | length of the trailer (8) | XXH3-128 (16)

The trailer is a msgpack list: rank, step, the header of the tensors, their sizes. What lies in a
vault is this block; what a process keeps of its own rank is too, so that nothing is copied again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec
import torch
import xxhash
from torch import Tensor

from trainmover.errors import ProtocolError, StateMismatch
from trainmover.protocol.malformed import MALFORMED
from trainmover.state import tensor_bytes
from trainmover.state.staging import copy_to_host

_ALIGNMENT = 64
_LENGTH_BYTES, _DIGEST_BYTES = 8, 16
_TAIL_BYTES = _LENGTH_BYTES + _DIGEST_BYTES


class _Trailer(msgspec.Struct, array_like=True):
    rank: int
    step: int
    header: bytes
    sizes: list[int]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What `of` or `from_block` gave; equal to nothing but itself.

    The tensors are flat bytes, inside the block.

    block  all of it; its last bytes, the digest, are there once `seal` was called
    """

    rank: int
    step: int
    header: bytes
    tensors: list[Tensor]
    block: memoryview

    @staticmethod
    def of(
        rank: int,
        step: int,
        header: bytes,
        tensors: Sequence[Tensor],
        room: bytearray | None,
        later: Collection[int] = (),
    ) -> "Snapshot":
        """A copy of the tensors as they are now.

        room: memory of a snapshot that is not needed any more; used if it is large enough
        later: numbers of those for which there is a place only, to be filled by the caller
        """
        sizes = [tensor.nbytes for tensor in tensors]
        trailer = msgspec.msgpack.encode(_Trailer(rank, step, header, sizes))
        begin = _room_of(sizes)
        total = begin + len(trailer) + _TAIL_BYTES
        if room is None or len(room) < total:
            room = bytearray(total + len(trailer))  # The next one's header may be longer.
        block = memoryview(room)[:total]
        block[begin : total - _DIGEST_BYTES] = trailer + len(trailer).to_bytes(8, "little")
        places = _places(block, sizes)
        for number, (tensor, place) in enumerate(zip(tensors, places, strict=True)):
            if number not in later:
                copy_to_host(tensor_bytes.flat_bytes(tensor), place)
        return Snapshot(rank, step, header, places, block)

    @staticmethod
    def from_block(data: bytearray) -> "Snapshot":
        """What `block` was. Raises ProtocolError if it is none, StateMismatch if it is damaged."""
        block = memoryview(data)
        end = len(block) - _TAIL_BYTES
        if end < 0:
            raise _no_snapshot("it is too short")
        if _digest(block) != block[-_DIGEST_BYTES:]:
            raise StateMismatch(
                "A snapshot of a rank's state is damaged: its checksum differs.",
                means="It is not used: a rank would train on with other numbers.",
                do="The job takes another copy. Look at the memory of the machine that kept it.",
            )
        length = int.from_bytes(block[end : end + _LENGTH_BYTES], "little")
        try:
            trailer = msgspec.msgpack.decode(block[end - length : end], type=_Trailer)
        except (*MALFORMED, ValueError) as error:
            raise _no_snapshot(str(error)) from error
        if length > end or _room_of(trailer.sizes) != end - length:
            raise _no_snapshot("its sizes do not add up")
        tensors = _places(block, trailer.sizes)
        return Snapshot(trailer.rank, trailer.step, trailer.header, tensors, block)

    def seal(self) -> None:
        """Write the digest behind the rest; takes as long as reading all of it."""
        self.block[-_DIGEST_BYTES:] = _digest(self.block)

    @property
    def is_whole(self) -> bool:
        """Whether it is as it was when it was sealed; takes as long."""
        return _digest(self.block) == self.block[-_DIGEST_BYTES:]

    @property
    def bulk(self) -> memoryview:
        """The part of the block that is nothing but tensors: equal where all of them are."""
        return self.block[: _room_of([tensor.nbytes for tensor in self.tensors])]

    @property
    def room(self) -> bytearray:
        """The memory it lies in, once nobody needs the snapshot any more."""
        assert isinstance(self.block.obj, bytearray)
        return self.block.obj


def _room_of(sizes: Sequence[int]) -> int:
    return sum(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)


def _places(block: memoryview, sizes: Sequence[int]) -> list[Tensor]:
    places, offset = [], 0
    for size in sizes:
        part = block[offset : offset + size]
        places.append(
            torch.frombuffer(part, dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8)
        )
        offset += -(-size // _ALIGNMENT) * _ALIGNMENT
    return places


def _digest(block: memoryview) -> bytes:
    return xxhash.xxh3_128(block[:-_DIGEST_BYTES]).digest()


def _no_snapshot(why: str) -> ProtocolError:
    return ProtocolError(
        f"These bytes are no snapshot of a rank's state: {why}.",
        means="Nothing was taken from them.",
        do="All processes of a job must run the same version of trainmover.",
    )
