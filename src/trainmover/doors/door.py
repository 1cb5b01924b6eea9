"""A listener on an event loop: who comes proves the token here, before anything else is read.

listener -> _Guest, in the crowd -> proved -> the service's own protocol
"""

import asyncio
import secrets
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainmover.doors.place import here
from trainmover.protocol.crowd import AT_ONCE, PATIENCE_S, QUEUE, Crowd
from trainmover.protocol.hello import NONCE_BYTES, End, Listener
from trainmover.protocol.sealed import Session

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls


class Door:
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
        self.crowd: Crowd[_Guest] = Crowd()
        self.guests: set[_Guest] = set()
        self.token, self.service, self.name = token, service, name
        self.welcome, self.turned_away = welcome, turned_away
        self._tls = tls
        self._server: asyncio.Server | None = None

    async def open(self, listener: socket.socket) -> None:
        """Let in who comes to a bound socket, which is the door's from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._guest, sock=listener, backlog=AT_ONCE)
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
        return self._tls.behind(guest, lambda _: self.crowd.heard(guest))


class _Guest(asyncio.Protocol):
    """One connection, until it is proved."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        door, loop = self._door, asyncio.get_running_loop()
        door.guests.add(self)
        crowded_out = door.crowd.come(self, loop.time())
        if crowded_out is not None:
            crowded_out.send_away()
        self._timer = loop.call_later(PATIENCE_S, self.send_away)
        end = End(door.service, here(transport.get_extra_info("socket")), me=door.name)
        self._hello = Listener(door.token, end, secrets.token_bytes(NONCE_BYTES))
        transport.write(self._hello.opening)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._hello.hear(data))
        if self._hello.error is not None:
            self._door.turned_away(self._hello.error.happened)
            self._transport.close()
        elif self._hello.proved:
            self._go()
            protocol = self._door.welcome(self._hello.session)
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
        self._door.guests.discard(self)
        self._door.crowd.go(self)
