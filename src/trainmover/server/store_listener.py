# SPDX-License-Identifier: Apache-2.0
"""Where the machines of a job come to its key-value stores: who proves the token is let in.

Behind the listener are two. In the one of ours (`protocol.keys`) groups meet. The other is torch's,
for what scripts themselves keep; it knows no secret, so agents are passed on to it from here, and
it hears nobody else (`server.store`).
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from trainmover.errors import ProtocolError
from trainmover.listeners.loop_listener import LoopListener
from trainmover.protocol.hello import STORE
from trainmover.protocol.keys import Keys, ToTorch, decode_request, encode
from trainmover.protocol.sealed import SealedReader, Session
from trainmover.splice import Ends, splice

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls


class StoreListener:
    """torch: dials torch's store. Raises OSError if it is gone."""

    def __init__(
        self, token: bytes, torch: Callable[[], Awaitable[Ends]], tls: "Tls | None" = None
    ) -> None:
        self._torch = torch
        self._keys = Keys()
        self._listener = LoopListener(token, STORE, self._welcome, tls=tls)

    async def serve(self, listener: socket.socket) -> None:
        """For ever."""
        await self._listener.open(listener)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._listener.close()

    def _welcome(self, session: Session) -> asyncio.Protocol:
        return _Link(session, self._keys, self._to_torch)

    def _to_torch(self) -> asyncio.Protocol:
        """What follows is torch's own, as it is."""
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._lead)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):  # Whoever came is gone, or the store is.
                await splice((reader, writer), await self._torch())
        finally:
            writer.transport.abort()


class _Link(asyncio.Protocol):
    """One process of the job, which asks."""

    def __init__(
        self, session: Session, keys: Keys, to_torch: Callable[[], asyncio.Protocol]
    ) -> None:
        self._session = session
        self._reader = SealedReader(session)
        self._keys = keys
        self._to_torch = to_torch

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for payload in self._reader.feed(data):
                self._answer(payload)
        except ProtocolError:  # Its own end says what that means: it sees the connection closed.
            self._transport.abort()

    def _answer(self, payload: bytes) -> None:
        request = decode_request(payload)
        answer = None if isinstance(request, ToTorch) else self._keys.answer(request)
        self._transport.write(self._session.seal(encode(answer)))
        if isinstance(request, ToTorch):
            stream = self._to_torch()
            self._transport.set_protocol(stream)
            stream.connection_made(self._transport)
