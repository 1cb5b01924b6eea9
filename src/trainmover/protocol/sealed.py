# SPDX-License-Identifier: Apache-2.0
"""What two ends say to each other once they are proved: each word marked, so that none can be
changed, left out, said twice or in another order by whoever sits on the wire. Pure.

    frame    length (4 bytes, big endian) | mark (16) | payload | mark (16)

The first mark covers the length, so nobody waits for bytes that were never sent. The number of a
mark does not travel: both ends count. Marks are HMAC-SHA256 under the key of their direction, cut
to 16 bytes; keys come from the hello and serve one connection. They are made of two hashes that
have taken the key in already: the library's own class takes ten calls of Python and up to six times
as long, and two marks a frame are most of what a heartbeat costs.
"""

import hashlib
import hmac
import struct

from trainmover.errors import ProtocolError
from trainmover.protocol.framing import FRAME_BYTES_MAX, HEADER, frame_length, too_long

MARK_BYTES = 16
HEAD_BYTES = HEADER.size + MARK_BYTES
_NUMBER = struct.Struct(">Q")
_BLOCK = hashlib.sha256().block_size

Part = bytes | bytearray | memoryview


class Marks:
    """Of one direction, one after the other.

    key     the secret that they are made with
    number  of the next one
    """

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.number = 0
        key = (hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in key))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in key))

    def next(self, *parts: Part) -> bytes:
        """The mark of what is said now, all parts together."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(_NUMBER.pack(self.number))
        for part in parts:
            inner.update(part)
        outer.update(inner.digest())
        self.number += 1
        return outer.digest()[:MARK_BYTES]

    def check(self, given: Part, *parts: Part) -> None:
        """Raises ProtocolError unless it is the mark of what has come now."""
        if not hmac.compare_digest(self.next(*parts), given):
            raise changed()


class Session:
    """One proved connection, at one of its ends.

    says, hears  marks of what we say, and of what comes
    peer         hash of the name that the other end gave in the hello
    """

    def __init__(self, ours: bytes, theirs: bytes, peer: bytes = b"") -> None:
        self.says = Marks(ours)
        self.hears = Marks(theirs)
        self.peer = peer

    def seal(self, payload: bytes, *, bytes_max: int = FRAME_BYTES_MAX) -> bytes:
        """A frame around it, to be sent next. Raises ProtocolError if it is too long."""
        if len(payload) > bytes_max:
            raise too_long(len(payload), bytes_max)
        length = HEADER.pack(len(payload))
        return b"".join((length, self.says.next(length), payload, self.says.next(payload)))

    def length(self, head: bytes, *, bytes_max: int = FRAME_BYTES_MAX) -> int:
        """Of the rest of the frame that begins with these HEAD_BYTES. Raises ProtocolError."""
        length = head[: HEADER.size]
        self.hears.check(head[HEADER.size :], length)
        return frame_length(length, bytes_max=bytes_max) + MARK_BYTES

    def opened(self, rest: Part) -> memoryview:
        """The payload of a frame whose rest is here. Raises ProtocolError."""
        whole = memoryview(rest)
        payload = whole[:-MARK_BYTES]
        self.hears.check(whole[-MARK_BYTES:], payload)
        return payload


class SealedReader:
    """Cuts a byte stream into frames and looks at their marks; feed it what `recv` gave.

    bytes_max  of a frame's payload
    """

    def __init__(self, session: Session, *, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._session = session
        self.bytes_max = bytes_max
        self._buffer = bytearray()
        self._whole: int | None = None  # Bytes of the frame whose head has come.

    def feed(self, data: bytes) -> list[bytes]:
        """Payloads of the frames that are whole now. Raises ProtocolError for what is not as the
        other end has said it; nothing that comes after that counts."""
        self._buffer += data
        buffer, payloads = self._buffer, []
        while len(buffer) >= HEAD_BYTES:
            if self._whole is None:
                head = bytes(buffer[:HEAD_BYTES])
                rest = self._session.length(head, bytes_max=self.bytes_max)
                self._whole = HEAD_BYTES + rest
            if len(buffer) < self._whole:
                break
            payloads.append(bytes(self._session.opened(buffer[HEAD_BYTES : self._whole])))
            del buffer[: self._whole]
            self._whole = None
        return payloads


def changed() -> ProtocolError:
    """What came is not what was said."""
    return ProtocolError(
        "What came over a proved connection is not what the other end has said.",
        means="It was not used, and the connection was ended; what ran goes on.",
        do="Somebody, or something broken, changes what goes over this network: look for it.",
    )
