# SPDX-License-Identifier: Apache-2.0
"""Frames on a byte stream: four bytes of length (big endian), then that many bytes. Pure.

A frame is one msgpack message unless two peers agreed on raw bytes (state transfer does).
The length is checked before anything is buffered, so a hostile peer cannot make us grow.
"""

import struct

from trainmover.errors import ProtocolError

HEADER = struct.Struct(">I")
FRAME_BYTES_MAX = 16 * 1024 * 1024
"""Control messages are small: a record of RNG and data position is a few KB."""


def frame(payload: bytes, *, bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """One frame around `payload`. Raises ProtocolError if it is longer than `bytes_max`."""
    if len(payload) > bytes_max:
        raise too_long(len(payload), bytes_max)
    return HEADER.pack(len(payload)) + payload


def frame_length(header: bytes, *, bytes_max: int = FRAME_BYTES_MAX) -> int:
    """Length announced by a four byte header. Raises ProtocolError if it exceeds `bytes_max`."""
    (length,) = HEADER.unpack(header)
    if length > bytes_max:
        raise too_long(length, bytes_max)
    return int(length)


class FrameReader:
    """Cuts a byte stream into frames; feed it what `recv` gave.

    >>> reader = FrameReader()
    >>> reader.feed(frame(b"ab") + frame(b"c")[:2])
    [b'ab']
    >>> reader.feed(frame(b"c")[2:])
    [b'c']
    """

    def __init__(self, *, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._bytes_max = bytes_max

    def feed(self, data: bytes) -> list[bytes]:
        """Frames completed by `data`. Raises ProtocolError on an oversized header."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= HEADER.size:
            end = HEADER.size + frame_length(
                bytes(self._buffer[: HEADER.size]), bytes_max=self._bytes_max
            )
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[HEADER.size : end]))
            del self._buffer[:end]
        return frames


def too_long(length: int, bytes_max: int) -> ProtocolError:
    """Refuses a frame."""
    return ProtocolError(
        f"A frame of {length} bytes was announced; at most {bytes_max} are allowed.",
        means="The connection was closed; nothing else was touched.",
        do="Something that is not trainmover, or another version of it, uses this port.",
    )
