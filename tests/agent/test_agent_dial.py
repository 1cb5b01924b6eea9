"""Dialling on an event loop, where the listener ends the connection during the hello."""

import asyncio
import socket
import struct

import pytest

from trainmover.agent import dial as dialling
from trainmover.agent.dial import dial, dial_first
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


def test_an_agent_that_begins_waits_for_a_controller_that_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dialling, "CONNECT_S_MAX", 0.2)
    dials: list[socket.socket] = []

    async def answer_the_third(listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            link, _ = await loop.sock_accept(listener)
            dials.append(link)
            if len(dials) == 3:
                opening = await loop.sock_recv(link, OPENING_BYTES)
                hello = Listener(TOKEN, End("controller", here(link)), bytes(NONCE_BYTES))
                link.sendall(hello.opening + hello.hear(opening))

    async def act() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            answering = asyncio.create_task(answer_the_third(listener))
            address = "127.0.0.1:{}".format(*listener.getsockname()[1:])
            dialled = await dial_first(address, TOKEN, me="m1")
            assert len(dials) == 3
            with pytest.raises(PeerLost, match="no answer"):
                await dial_first(address, TOKEN, me="m1", within_s=0.3)
            dialled.transport.abort()
            answering.cancel()
            for link in dials:
                link.close()

    asyncio.run(act())


def test_where_nobody_listens_an_agent_does_not_wait() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = "127.0.0.1:{}".format(*closed.getsockname()[1:])
    with pytest.raises(PeerLost, match="could not be reached"):
        asyncio.run(dial_first(address, TOKEN, me="m1", within_s=3600))
