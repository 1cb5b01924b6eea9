# SPDX-License-Identifier: Apache-2.0
"""A vault on a port of the agent's event loop.

Plain asyncio.Protocol, no streams: a record is answered in the callback that received it, which
is on the critical path of every step.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainmover.errors import ProtocolError
from trainmover.listeners.dial import format_address
from trainmover.listeners.loop_listener import LoopListener
from trainmover.protocol.sealed import SealedReader, Session
from trainmover.state.vault import wire
from trainmover.state.vault.requests import Requests
from trainmover.state.vault.store import Vault

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls


class VaultServer:
    """A listening vault; `close` ends the listener and every connection.

    come_behind  called with what a neighbour has for the agent; None: there is none yet
    """

    def __init__(self, vault: Vault, token: bytes, tls: "Tls | None") -> None:
        self.address = ""
        self.come_behind: Callable[[wire.ComeBehind], None] | None = None
        self._vault = vault
        self._listener = LoopListener(token, wire.PURPOSE, self._welcome, tls=tls)
        self._links: set[_Link] = set()

    async def open(self, listener: socket.socket) -> None:
        """Serve from the running event loop."""
        self.address = format_address(*listener.getsockname()[:2])
        await self._listener.open(listener)

    def close(self) -> None:
        self._listener.close()
        for link in list(self._links):
            link.drop()

    def _welcome(self, session: Session) -> asyncio.Protocol:
        return _Link(Requests(self._vault, self._fetched), self._links, session)

    def _fetched(self, request: wire.ComeBehind) -> None:
        if self.come_behind is not None:
            self.come_behind(request)


async def serve(
    vault: Vault,
    token: bytes,
    bind: str = "127.0.0.1",
    port: int = 0,
    *,
    tls: "Tls | None" = None,
) -> VaultServer:
    """Serve `vault` to whoever knows `token`, from the running event loop."""
    server = VaultServer(vault, token, tls)
    await server.open(socket.create_server((bind, port), family=_family(bind)))
    return server


def _family(bind: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in bind else socket.AF_INET


def address_of(server: VaultServer) -> str:
    return server.address


class _Link(asyncio.Protocol):
    """One proved connection: requests, each answered at once."""

    def __init__(self, requests: Requests, links: "set[_Link]", session: Session) -> None:
        self._links = links
        self._session = session
        self._frames = SealedReader(session)
        self._requests = requests

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._links.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._links.discard(self)

    def drop(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            for payload in self._frames.feed(data):
                self._transport.write(self._session.seal(self._requests.answer(payload)))
        except ProtocolError:
            self.drop()  # Not as one of us has said it: refuse it, keep everybody else.
