# SPDX-License-Identifier: Apache-2.0
"""What goes over a connection between a source of state and a client.

    client -> server   hello (purpose "state"), what it wants: a key, and whether the header too
    server -> client   when the key is offered: header, sizes and hashes of the tensors, and what
                       they are alike to
    client -> server   how many of the tensors it has already, and which: the others are cut into
                       chunks; then numbers of these, a few ahead of what has come. 4 bytes each
    server -> client   for each: payload (<= 1 MiB) | mark of the XXH3-128 of number and payload

until the client hangs up. It asks for little at a time, so a slow source is asked for less. All but
the chunks are sealed frames (`protocol.sealed`). A chunk's mark says that its place in the order,
its number and its checksum are the source's own: bytes that were changed by accident are found.
Who owns the wire could find others with the same checksum, which is not made against that.
"""

import struct

import msgspec

from trainmover.errors import ProtocolError, StateMismatch, UserError
from trainmover.protocol.malformed import MALFORMED
from trainmover.state.proof.digest import HASH_BYTES

PURPOSE = "state"
WANTED_BYTES_MAX = 4096
ASKED_BYTES_MAX = 16 * 1024 * 1024
HEADER_BYTES_MAX = 256 * 1024 * 1024
NUMBER = struct.Struct("<I")


class Wanted(msgspec.Struct, array_like=True):
    """header: whether to send it; a second connection to the same source has no use for it."""

    key: str
    header: bool


class Opening(msgspec.Struct, array_like=True, tag=1):
    """sizes: of the tensors in bytes. alike, hashes, proof: see `Offered`; one hash after the
    other."""

    header: bytes
    sizes: list[int]
    alike: str
    hashes: bytes = b""
    proof: bytes = b""

    def hash_of(self, tensor: int) -> bytes:
        """b"" if the source does not say."""
        return self.hashes[tensor * HASH_BYTES : (tensor + 1) * HASH_BYTES]


class Unable(msgspec.Struct, array_like=True, tag=2):
    """Why a source cannot give its state."""

    happened: str
    means: str
    do: str


_encoder = msgspec.msgpack.Encoder()
_openings = msgspec.msgpack.Decoder(Opening | Unable)
_wanted = msgspec.msgpack.Decoder(Wanted)


def wanted_bytes(wanted: Wanted) -> bytes:
    """The payload of a frame."""
    return _encoder.encode(wanted)


def read_wanted(payload: bytes | memoryview) -> Wanted:
    """Raises ProtocolError if the payload of a frame is none."""
    try:
        return _wanted.decode(payload)
    except MALFORMED as error:
        raise ProtocolError("A client of state asked for what makes no sense.") from error


def opening_bytes(opening: Opening | Unable) -> bytes:
    """The payload of a frame."""
    return _encoder.encode(opening)


def read_opening(payload: bytes | memoryview) -> Opening:
    """Raises ProtocolError (no opening at all), or UserError (the source says why it cannot)."""
    try:
        opening: Opening | Unable = _openings.decode(payload)
    except MALFORMED as error:
        raise ProtocolError(
            "A state source announced what makes no sense.",
            means="Nothing was taken from it.",
            do="All processes of a job must run the same version of trainmover.",
        ) from error
    if isinstance(opening, Unable):
        raise UserError(opening.happened, means=opening.means, do=opening.do)
    return opening


def corrupted(address: str) -> StateMismatch:
    """Bytes do not have the checksum that came with them."""
    return StateMismatch(
        f"Bytes from the state source at {address} were changed on their way.",
        means="What came from it is not used.",
        do="Check memory and network of that machine and of this one.",
    )
