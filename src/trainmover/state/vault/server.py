"""A vault on a port of the agent's event loop.

Plain asyncio.Protocol, no streams: a record is answered in the callback that received it, which
is on the critical path of every step.
"""

import asyncio
import secrets
import socket
from typing import TYPE_CHECKING

from trainmover.errors import ProtocolError
from trainmover.protocol.crowd import AT_ONCE, PATIENCE_S, QUEUE, Crowd
from trainmover.protocol.framing import FrameReader, frame
from trainmover.protocol.hello import CHALLENGE_BYTES, REFUSAL, Greeting
from trainmover.state.doors.dial import format_address
from trainmover.state.vault import wire
from trainmover.state.vault.requests import Requests
from trainmover.state.vault.store import Vault

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls


class VaultServer:
    """A listening vault; `close` ends the listener and every connection."""

    def __init__(self, server: asyncio.Server, links: "set[_Link]") -> None:
        self._server = server
        self._links = links
        host, port = server.sockets[0].getsockname()[:2]
        self.address = format_address(host, port)

    def close(self) -> None:
        self._server.close()
        for link in list(self._links):
            link.drop()

    async def wait_closed(self) -> None:
        await self._server.wait_closed()


async def serve(
    vault: Vault,
    token: bytes,
    bind: str = "127.0.0.1",
    port: int = 0,
    *,
    tls: "Tls | None" = None,
) -> VaultServer:
    """Serve `vault` to whoever knows `token`, from the running event loop."""
    links: set[_Link] = set()
    crowd: Crowd[asyncio.Transport] = Crowd()
    loop = asyncio.get_running_loop()
    listener = socket.create_server((bind, port), family=_family(bind))

    def link() -> asyncio.Protocol:
        link = _Link(vault, token, links, crowd)
        return link if tls is None else tls.behind(link, crowd.heard)

    server = await loop.create_server(link, sock=listener, backlog=AT_ONCE)
    listener.listen(QUEUE)
    return VaultServer(server, links)


def _family(bind: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in bind else socket.AF_INET


def address_of(server: VaultServer) -> str:
    return server.address


class _Link(asyncio.Protocol):
    """One connection: first the hello, then requests, each answered at once."""

    def __init__(
        self, vault: Vault, token: bytes, links: "set[_Link]", crowd: Crowd[asyncio.Transport]
    ) -> None:
        self._links = links
        self._crowd = crowd
        self._challenge = secrets.token_bytes(CHALLENGE_BYTES)
        self._greeting = Greeting(token, wire.PURPOSE, self._challenge)
        self._frames = FrameReader()
        self._requests = Requests(vault)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._links.add(self)
        loop = asyncio.get_running_loop()
        crowded_out = self._crowd.come(transport, loop.time())
        if crowded_out is not None:
            crowded_out.abort()
        self._timer = loop.call_later(PATIENCE_S, self.drop)
        transport.write(self._challenge)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._links.discard(self)
        self._crowd.go(self._transport)

    def drop(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._greeting.proved:
            data = self._greet(data)
        if not data:
            return
        try:
            for payload in self._frames.feed(data):
                self._transport.write(frame(self._requests.answer(payload)))
        except ProtocolError:
            self.drop()  # Whoever sends that is not one of us: refuse it, keep everybody else.

    def _greet(self, data: bytes) -> bytes:
        reply = self._greeting.hear(data)
        if not reply:
            return b""
        self._timer.cancel()
        self._crowd.go(self._transport)
        self._transport.write(reply)
        if reply == REFUSAL:
            self.drop()
        return self._greeting.rest
