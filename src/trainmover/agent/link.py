"""One connection to the controller: frames to and fro, without copies that are not needed.

What `FrameLink` hears it says to two callables, on the loop: it never awaits, so that a relayed
order leaves in the same turn of the loop in which it came.
"""

import asyncio
from collections.abc import Callable

from trainmover.errors import ProtocolError
from trainmover.protocol.framing import FrameReader, frame


class FrameLink(asyncio.Protocol):
    """heard(payload) for every frame; lost(reason, alien) once, "" when the peer just closed.

    alien: what came was nothing that a controller says.
    """

    def __init__(self, heard: Callable[[bytes], None], lost: Callable[[str, bool], None]) -> None:
        self._heard = heard
        self._lost = lost
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._reason = ""

    def take(self, transport: asyncio.Transport) -> None:
        """Go on with a connection that was dialled."""
        transport.set_protocol(self)
        self.connection_made(transport)
        transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for payload in self._reader.feed(data):
                self._heard(payload)
        except ProtocolError as error:
            self._reason = error.happened
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost(self._reason or (str(exc) if exc else ""), bool(self._reason))

    def send(self, payload: bytes) -> None:
        """Frame and write; a link that is gone swallows it, `lost` has told."""
        self.send_framed(frame(payload))

    def send_framed(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Write what is queued, then close."""
        if self._transport is not None:
            self._transport.close()
