"""Where machines on other hosts come to the store.

torch's store knows no secret, so it listens on the loopback interface only. Beside it, in the same
process, is a door on the network: who proves the token there is passed on to it.
"""

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from trainmover.doors.door import Door
from trainmover.protocol.hello import STORE
from trainmover.protocol.sealed import Session
from trainmover.splice import splice

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls


class StoreDoor:
    """store: host and port of the store itself."""

    def __init__(self, token: bytes, store: tuple[str, int], tls: "Tls | None" = None) -> None:
        self._store = store
        self._door = Door(token, STORE, self._welcome, tls=tls)

    async def serve(self, listener: socket.socket) -> None:
        """For ever."""
        await self._door.open(listener)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._door.close()

    def _welcome(self, session: Session) -> asyncio.Protocol:
        """What follows is torch's own, as it is."""
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._lead)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):  # Whoever came is gone, or the store is.
                await splice((reader, writer), await asyncio.open_connection(*self._store))
        finally:
            writer.transport.abort()
