"""Where machines on other hosts come to the store.

torch's store knows no secret, so it listens on the loopback interface only. Beside it, in the same
process, is a door on the network: who proves the token there is passed on to it.
"""

import asyncio
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from trainmover.protocol.crowd import PATIENCE_S, Crowd
from trainmover.protocol.hello import CHALLENGE_BYTES, REFUSAL, STORE, Greeting
from trainmover.splice import Ends, splice

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls


class StoreDoor:
    """store: host and port of the store itself."""

    def __init__(self, token: bytes, store: tuple[str, int], tls: "Tls | None" = None) -> None:
        self._token = token
        self._store = store
        self._tls = tls
        self._crowd: Crowd[asyncio.WriteTransport] = Crowd()

    async def serve(self, listener: socket.socket) -> None:
        """For ever."""

        def guest() -> asyncio.Protocol:
            guest = asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._come)
            return guest if self._tls is None else self._tls.behind(guest, self._crowd.heard)

        server = await asyncio.get_running_loop().create_server(guest, sock=listener)
        await server.serve_forever()

    async def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, TimeoutError):  # Whoever came is gone, or the store is.
                if await self._proves((reader, writer)):
                    await splice((reader, writer), await asyncio.open_connection(*self._store))
        finally:
            self._crowd.go(writer.transport)
            writer.transport.abort()

    async def _proves(self, ends: Ends) -> bool:
        """Whether who stands here knows the token."""
        reader, writer = ends
        crowded_out = self._crowd.come(writer.transport, asyncio.get_running_loop().time())
        if crowded_out is not None:
            crowded_out.abort()
        challenge = os.urandom(CHALLENGE_BYTES)
        greeting = Greeting(self._token, STORE, challenge)
        writer.write(challenge)
        async with asyncio.timeout(PATIENCE_S):
            while not greeting.proved:
                data = await reader.read(greeting.missing)
                reply = greeting.hear(data)
                writer.write(reply)
                if not data or reply == REFUSAL:
                    await writer.drain()
                    return False
        self._crowd.go(writer.transport)
        return True
