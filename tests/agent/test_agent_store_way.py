"""torch's store is reached by workers of this user, by a listener that wants the token."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from tls_files import made

from trainmover.agent import store_way
from trainmover.agent.store_way import StoreWay, owner
from trainmover.listeners.place import there
from trainmover.protocol.hello import OPENING_BYTES, PROOF_BYTES, STORE, End
from trainmover.server.store_listener import StoreListener
from trainmover.tls.contexts import Tls

TOKEN, OTHER = b"t" * 32, b"o" * 32
LOOPBACK = "127.0.0.1"


def listening() -> socket.socket:
    return socket.create_server((LOOPBACK, 0))


@asynccontextmanager
async def listener(tls: Tls | None = None) -> AsyncIterator[str]:
    """Of a store that says everything back in capitals; its address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (data := await reader.read(100)) not in (b"", b"end"):
            writer.write(data.upper())
        writer.close()

    store = await asyncio.start_server(answer, LOOPBACK, 0)
    listener = listening()
    address = "{}:{}".format(*listener.getsockname())
    serving = asyncio.ensure_future(
        StoreListener(
            TOKEN, partial(asyncio.open_connection, *store.sockets[0].getsockname()), tls
        ).serve(listener)
    )
    try:
        yield address
    finally:
        serving.cancel()
        store.close()


async def said_by(address: str, words: bytes) -> bytes:
    """What comes back, b"" if the connection ends instead."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(words)
        return await reader.read(100)
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("tls", [None, made("job").read()], ids=["plain", "in TLS"])
def test_a_worker_speaks_with_a_store_on_another_host(tls: Tls | None) -> None:
    async def run() -> bytes:
        async with listener(tls) as address:
            way = StoreWay(address, TOKEN, tls)
            assert way.address != address
            try:
                return await said_by(way.address, b"words")
            finally:
                way.close()

    assert asyncio.run(run()) == b"WORDS"


def test_who_does_not_know_the_token_does_not_get_to_the_store() -> None:
    async def run() -> bytes:
        async with listener() as address:
            way = StoreWay(address, OTHER)
            try:
                return await said_by(way.address, b"words")
            finally:
                way.close()

    assert asyncio.run(run()) == b""


def test_a_stranger_at_the_listener_gets_an_opening_and_a_proof_and_nothing_of_the_store() -> None:
    async def run() -> bytes:
        async with listener() as address:
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            where = there(writer.get_extra_info("socket"))
            writer.write(End(STORE, where).opening(bytes(16)) + bytes(PROOF_BYTES) + b"words")
            heard = await reader.read()
            writer.close()
            return heard

    assert len(asyncio.run(run())) == OPENING_BYTES + PROOF_BYTES


def test_another_user_of_this_host_is_not_led_to_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_way, "owner", lambda *ends: os.getuid() + 1)

    async def run() -> bytes:
        async with listener() as address:
            way = StoreWay(address, TOKEN)
            try:
                return await said_by(way.address, b"words")
            finally:
                way.close()

    assert asyncio.run(run()) == b""


def test_the_end_of_a_store_is_the_end_of_those_who_speak_with_it() -> None:
    async def run() -> bytes:
        async with listener() as address:
            way = StoreWay(address, TOKEN)
            host, _, port = way.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"a")
            assert await reader.read(1) == b"A"
            writer.write(b"end")
            try:
                return await reader.read()
            except ConnectionError:
                return b""
            finally:
                writer.transport.abort()
                way.close()

    assert asyncio.run(run()) == b""


@pytest.fixture(params=["asked", "listed"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernel answers that it knows only that way."""
    if request.param == "asked":
        monkeypatch.setattr(store_way, "_listed", lambda address: None)
    else:
        monkeypatch.setattr(store_way, "_asked", _refused)
    return str(request.param)


def _refused(*_: object) -> None:
    raise PermissionError


@pytest.mark.usefixtures("how")
def test_whose_a_connection_is() -> None:
    with listening() as listener, socket.create_connection(listener.getsockname()) as mine:
        assert owner(mine.getsockname(), listener.getsockname()) == os.getuid()
        assert owner(("127.1.2.3", 1), listener.getsockname()) is None


@pytest.mark.usefixtures("how")
def test_whose_a_connection_is_that_speaks_ipv6_at_its_own_end() -> None:
    """As torch's client does."""
    with listening() as listener, socket.socket(socket.AF_INET6) as mine:
        mine.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
        accepted, address = listener.accept()
        with accepted:
            assert owner(address, accepted.getsockname()) == os.getuid()


def test_an_agent_that_ends_while_a_worker_is_connected_prints_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with listener() as address:
            way = StoreWay(address, TOKEN)
            host, _, port = way.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"words")
            assert await reader.read(100) == b"WORDS"

    asyncio.run(run())
    assert "agent/store_way.py" not in caplog.text  # Of the store in this test it prints one.
