# SPDX-License-Identifier: Apache-2.0
"""TLS on an event loop, between a connection and the protocol that is spoken over it.

asyncio's own tells a protocol of its connection when the handshake is done. Here it is told at
once: who is slow with the handshake, or never ends it, has proved nothing, and is pushed out like
all such connections (`protocol.unauthenticated`).

    transport <-- bytes --> Secured <-- plain --> protocol
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trainmover.protocol.hello import TLS_ONLY
from trainmover.tls.refusals import Listener

_READ_BYTES = 256 * 1024


def begins_like_tls(data: bytes) -> bool:
    """Whether the first byte that a peer said may be that of TLS."""
    return data[:1] in (b"\x14", b"\x15", b"\x16", b"\x17")


class Secured(asyncio.Protocol):
    """listener: who was dialled; None: we listen. heard: told of the connection that the protocol
    has, as soon as the peer says anything.

    What the protocol writes before the handshake is done waits for that. Who connects to us and
    says nothing has cost no more than without TLS.
    """

    def __init__(
        self,
        protocol: asyncio.Protocol,
        context: ssl.SSLContext,
        listener: Listener | None = None,
        heard: Callable[[asyncio.Transport], None] | None = None,
    ) -> None:
        self.protocol = protocol
        self._context = context
        self._listener = listener
        self._tls: ssl.SSLObject | None = None
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._told = heard
        self._heard = self._shaken = False
        self._waiting: list[bytes] = []
        self._paused = False
        self._why: Exception | None = None

    # --- the connection ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._plain = Plain(self, transport)
        self.protocol.connection_made(self._plain)
        if self._listener is not None:
            self._go_on()

    def data_received(self, data: bytes) -> None:
        if not self._heard:
            if not begins_like_tls(data):
                self._refuse(ssl.SSLError(ssl.SSL_ERROR_SSL, "what it says is not TLS"))
                return
            self._heard = True
            if self._told is not None:
                self._told(self._plain)
        self._came.write(data)
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self.protocol.connection_lost(self._why or exc)

    def pause_writing(self) -> None:
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self.protocol.resume_writing()

    # --- between them ---

    def _begin(self) -> ssl.SSLObject:
        listener = self._listener
        host = None if listener is None else listener.host
        return self._context.wrap_bio(
            self._came, self._goes, server_side=listener is None, server_hostname=host
        )

    def _go_on(self) -> None:
        """As far as what has come allows."""
        tls = self._tls = self._tls or self._begin()
        try:
            if not self._shaken:
                self._shake_hands(tls)
            while not self._paused and not self._transport.is_closing():
                data = tls.read(_READ_BYTES)
                if not data:  # It has said that nothing more comes.
                    self.close()
                    break
                self.protocol.data_received(data)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._refuse(error)
        self._flush()

    def _shake_hands(self, tls: ssl.SSLObject) -> None:
        tls.do_handshake()
        self._shaken = True
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            tls.write(data)
        self._flush()

    def _refuse(self, error: ssl.SSLError) -> None:
        """End it; the peer is told why, as far as TLS has a word for that."""
        if self._listener is not None:
            self._why = self._listener.refused(error)
        elif not self._heard:
            self._transport.write(TLS_ONLY)
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._goes.pending and not self._transport.is_closing():
            self._transport.write(self._goes.read())

    # --- the protocol ---

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._transport.is_closing() or not data:
            return
        if self._shaken and self._tls is not None:
            self._tls.write(data)
            self._flush()
        else:
            self._waiting.append(bytes(data))

    def pause(self, paused: bool) -> None:
        self._paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._go_on_if_open)

    def _go_on_if_open(self) -> None:
        if not self._transport.is_closing():
            self._go_on()

    def close(self) -> None:
        """Say that nothing more comes, then close when all is written."""
        if self._shaken and self._tls is not None and not self._transport.is_closing():
            with suppress(ssl.SSLError):  # It wants the other's answer, which nobody needs.
                self._tls.unwrap()
            self._flush()
        self._transport.close()

    def waiting_bytes(self) -> int:
        return sum(map(len, self._waiting))

    def about(self, name: str, default: Any) -> Any:
        known = {"sslcontext": self._context, "ssl_object": self._tls}
        return known.get(name) or self._transport.get_extra_info(name, default)


class Plain(asyncio.Transport):
    """What the protocol takes for its connection."""

    def __init__(self, secured: Secured, below: asyncio.Transport) -> None:
        super().__init__()
        self._secured = secured
        self._below = below

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._secured.about(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._secured.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._secured.protocol

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def is_reading(self) -> bool:
        return self._below.is_reading()

    def pause_reading(self) -> None:
        self._secured.pause(True)

    def resume_reading(self) -> None:
        self._secured.pause(False)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._secured.write(data)

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self._secured.waiting_bytes() + self._below.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._below.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def close(self) -> None:
        self._secured.close()

    def abort(self) -> None:
        self._below.abort()
