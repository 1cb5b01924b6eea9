"""What protocols and threads see of a connection in TLS: the same as of a plain one."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
from tls_files import made

from trainmover.tls.contexts import Tls

MANY = bytes(range(256)) * 16384
WAIT_S = 30.0


@pytest.fixture(scope="module")
def tls() -> Tls:
    return made("job").read()


class Echo(asyncio.Protocol):
    """Says back what it hears, and closes behind `last` bytes."""

    def __init__(self, last: int) -> None:
        self.left = last
        self.gone = asyncio.Event()
        self.paused = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)
        self.left -= len(data)
        if self.left <= 0:
            self.transport.close()

    def pause_writing(self) -> None:
        self.paused += 1
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()


def with_echo(tls: Tls, last: int, act: Callable[[str, int, Echo], Awaitable[None]]) -> None:
    async def run() -> None:
        echo = Echo(last)
        heard: list[asyncio.Transport] = []
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: tls.behind(echo, heard.append), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with asyncio.timeout(WAIT_S):
            await act(host, port, echo)
            await echo.gone.wait()
        assert heard == [echo.transport]
        server.close()

    asyncio.run(run())


def talk(tls: Tls, host: str, port: int, data: bytes) -> bytes:
    """Says it all from one thread, hears from another as any blocking client would."""
    plain = socket.create_connection((host, port), WAIT_S)
    with tls.dial(plain, host, "echo") as link:
        heard = bytearray(len(data))
        view, at = memoryview(heard), 0
        for start in range(0, len(data), 65536):
            part = data[start : start + 65536]
            assert link.sendmsg([memoryview(part)[:10], part[10:]]) == len(part)
            count = link.recvmsg_into([view[at : at + 7], view[at + 7 : at + len(part)]])[0]
            assert count == len(part)
            at += count
        assert link.recv(1) == b""
    return bytes(heard)


def test_what_threads_say_comes_back_as_it_was(tls: Tls) -> None:
    async def act(host: str, port: int, echo: Echo) -> None:
        assert await asyncio.to_thread(talk, tls, host, port, MANY) == MANY

    with_echo(tls, len(MANY), act)


def test_a_loop_that_writes_faster_than_is_read_is_paused(tls: Tls) -> None:
    """All of it comes, in order, though the other end reads late."""

    async def act(host: str, port: int, echo: Echo) -> None:
        reader = asyncio.StreamReader()
        ear = asyncio.StreamReaderProtocol(reader)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(
            lambda: tls.towards(ear, host, "echo"), host, port
        )
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        reader._transport.write(MANY)  # type: ignore[attr-defined]
        while not echo.paused:
            await asyncio.sleep(0.001)
        assert await reader.readexactly(len(MANY)) == MANY
        transport.abort()

    with_echo(tls, len(MANY), act)


@contextmanager
def pair(tls: Tls) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A dialler and a listener, the handshake done."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname(), WAIT_S)
        theirs, _ = listener.accept()
    accepted = tls.accept(theirs)
    dialled: list[socket.socket] = []
    thread = threading.Thread(target=lambda: dialled.append(tls.dial(ours, "127.0.0.1", "test")))
    thread.start()
    accepted.setblocking(True)
    assert tls.shake_hands(accepted)
    thread.join(WAIT_S)
    with accepted, dialled[0]:
        yield dialled[0], accepted


def test_a_thread_that_waits_is_woken_by_another_that_hangs_up(tls: Tls) -> None:
    with pair(tls) as (dialled, accepted):
        heard: list[bytes] = []
        dialled.settimeout(None)
        thread = threading.Thread(target=lambda: heard.append(dialled.recv(10)))
        thread.start()
        dialled.shutdown(socket.SHUT_RDWR)
        thread.join(WAIT_S)
        assert heard == [b""]
        assert accepted.recv(10) == b""


def test_nothing_goes_out_in_plain_text_behind_a_shutdown(tls: Tls) -> None:
    with pair(tls) as (dialled, accepted):
        dialled.shutdown(socket.SHUT_RD)
        dialled.sendall(b"still secret")
        assert accepted.recv(100) == b"still secret"


def test_a_peer_that_is_gone_raises_what_a_plain_one_does(tls: Tls) -> None:
    with pair(tls) as (dialled, accepted):
        accepted.close()
        with pytest.raises(ConnectionError):
            dialled.sendall(MANY * 8)


def test_nothing_yet_is_said_as_a_plain_socket_says_it(tls: Tls) -> None:
    with pair(tls) as (dialled, _):
        dialled.setblocking(False)
        with pytest.raises(BlockingIOError):
            dialled.recv(1)


def test_older_tls_is_refused_and_nothing_is_resumed(tls: Tls) -> None:
    """As a client sees it that would resume what it can."""
    context = ssl.create_default_context(cafile=made("job").ca)
    session: ssl.SSLSession | None = None

    def come(port: int) -> None:
        nonlocal session
        with (
            socket.create_connection(("127.0.0.1", port), WAIT_S) as link,
            context.wrap_socket(link, server_hostname="127.0.0.1", session=session) as inside,
        ):
            inside.sendall(b"x")
            assert inside.recv(1) == b"x"
            assert not inside.session_reused
            session = inside.session

    async def run() -> None:
        loop = asyncio.get_running_loop()
        listen = loop.create_server(lambda: tls.behind(Echo(1), lambda _: None), "127.0.0.1", 0)
        async with asyncio.timeout(WAIT_S), await listen as server:
            port = server.sockets[0].getsockname()[1]
            for _ in range(2):
                await asyncio.to_thread(come, port)
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises(ssl.SSLError):
                await asyncio.to_thread(come, port)

    asyncio.run(run())
