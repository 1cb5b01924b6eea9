# SPDX-License-Identifier: Apache-2.0
"""A listener on an event loop: who comes proves the token here, before anything else is read.

listener -> _Guest, among the unauthenticated -> proved -> the service's own protocol
"""

import asyncio
import secrets
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainmover.descriptors import shares
from trainmover.listeners.place import here
from trainmover.protocol.hello import NONCE_BYTES, End, Listener
from trainmover.protocol.sealed import Session
from trainmover.protocol.unauthenticated import PATIENCE_S, QUEUE, Unauthenticated

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls


class LoopListener:
    """welcome(session) gives who goes on with a connection that is proved; it is told of it as of a
    new one.

    name         of who listens; "": it has none
    tls          spoken here, if it is given
    turned_away  told why somebody was not let in
    """

    def __init__(
        self,
        token: bytes,
        service: str,
        welcome: Callable[[Session], asyncio.Protocol],
        *,
        name: str = "",
        tls: "Tls | None" = None,
        turned_away: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._shares = shares()
        self.unauthenticated: Unauthenticated[_Guest] = Unauthenticated(self._shares.strangers)
        self.guests: set[_Guest] = set()
        self.token, self.service, self.name = token, service, name
        self.welcome, self.turned_away = welcome, turned_away
        self._tls = tls
        self._server: asyncio.Server | None = None

    async def open(self, listener: socket.socket) -> None:
        """Let in who comes to a bound socket, which is the listener's from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._guest, sock=listener, backlog=self._shares.at_once
        )
        listener.listen(QUEUE)

    def close(self) -> None:
        """Nobody comes any more, and who still stands here goes. Who is in stays."""
        if self._server is not None:
            self._server.close()
        for guest in list(self.guests):
            guest.send_away()

    def _guest(self) -> asyncio.Protocol:
        guest = _Guest(self)
        if self._tls is None:
            return guest
        return self._tls.behind(guest, lambda _: self.unauthenticated.heard(guest))


class _Guest(asyncio.Protocol):
    """One connection, until it is proved."""

    def __init__(self, listener: LoopListener) -> None:
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        listener, loop = self._listener, asyncio.get_running_loop()
        listener.guests.add(self)
        pushed_out = listener.unauthenticated.come(self, loop.time())
        if pushed_out is not None:
            pushed_out.send_away()
        self._timer = loop.call_later(PATIENCE_S, self.send_away)
        end = End(listener.service, here(transport.get_extra_info("socket")), me=listener.name)
        self._hello = Listener(listener.token, end, secrets.token_bytes(NONCE_BYTES))
        transport.write(self._hello.opening)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._hello.hear(data))
        if self._hello.error is not None:
            self._listener.turned_away(self._hello.error.happened)
            self._transport.close()
        elif self._hello.proved:
            self._go()
            protocol = self._listener.welcome(self._hello.session)
            self._transport.set_protocol(protocol)
            protocol.connection_made(self._transport)
            if self._hello.rest:
                protocol.data_received(self._hello.rest)

    def connection_lost(self, exc: Exception | None) -> None:
        self._go()

    def send_away(self) -> None:
        self._transport.abort()

    def _go(self) -> None:
        self._timer.cancel()
        self._listener.guests.discard(self)
        self._listener.unauthenticated.go(self)
