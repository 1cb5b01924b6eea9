"""Dialling on an event loop, where the listener ends the connection during the hello."""

import asyncio
import socket
import struct

import pytest

from trainmover.agent.dial import dial
from trainmover.errors import PeerLost
from trainmover.listeners.place import here
from trainmover.protocol.hello import NONCE_BYTES, OPENING_BYTES, End, Listener

TOKEN = b"0123456789abcdef-token"
AT_ONCE = struct.pack("ii", 1, 0)


def test_a_connection_that_is_reset_behind_the_listeners_proof_is_none() -> None:
    """The last word of a hello is the dialler's, and nobody may be there to hear it."""

    async def reset_all(listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            link, _ = await loop.sock_accept(listener)
            opening = await loop.sock_recv(link, OPENING_BYTES)
            hello = Listener(TOKEN, End("controller", here(link)), bytes(NONCE_BYTES))
            link.sendall(hello.opening + hello.hear(opening))
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            link.close()

    async def act() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            resetting = asyncio.create_task(reset_all(listener))
            with pytest.raises(PeerLost):
                await dial("127.0.0.1:{}".format(*listener.getsockname()[1:]), TOKEN)
            resetting.cancel()

    asyncio.run(act())
