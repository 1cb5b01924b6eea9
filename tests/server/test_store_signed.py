"""torch's store hears its own process only: strangers get no connection, and are not heard."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from trainmover.listeners.signed import KEY_BYTES, end_others, queued, sign
from trainmover.server.store import TorchStore

KEY = bytes(range(KEY_BYTES))
SILENT_S = 0.3


def can_sign() -> bool:
    with socket.socket() as link:
        return sign(link, KEY)


pytestmark = pytest.mark.skipif(not can_sign(), reason="this kernel has no TCP-MD5")


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_only_who_has_the_key_connects(sockets: ExitStack) -> None:
    listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
    assert sign(listener, KEY)
    for key, comes in ((b"", False), (KEY[::-1], False), (KEY, True)):
        link = sockets.enter_context(socket.socket())
        assert not key or sign(link, key)
        link.settimeout(60.0 if comes else SILENT_S)
        with suppress(TimeoutError):
            link.connect(listener.getsockname())
        assert queued(listener) == comes


def test_who_came_before_the_key_has_to_go(sockets: ExitStack) -> None:
    """Our own connections stay."""
    listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
    ours = sockets.enter_context(socket.create_connection(listener.getsockname()))
    kept, _ = listener.accept()
    sockets.enter_context(kept)
    assert end_others(listener) == 0

    async def stranger() -> bytes:
        code = "import socket, sys; at = '127.0.0.1', int(sys.argv[1])\n"
        code += "print(socket.create_connection(at).recv(1))"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, str(listener.getsockname()[1]),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        link, _ = await asyncio.to_thread(listener.accept)
        with link:
            assert end_others(listener) == 1
            return (await process.communicate())[0].strip()

    assert asyncio.run(stranger()) == b"b''"
    kept.sendall(b"x")
    assert ours.recv(1) == b"x"


def test_a_stranger_at_torchs_store_is_not_heard(
    sockets: ExitStack, capfd: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        store = TorchStore()
        await store.serve()
        assert store.signed
        for _ in range(3):
            link = sockets.enter_context(socket.socket())
            link.settimeout(SILENT_S)
            with pytest.raises(TimeoutError):
                link.connect(store.address)
        _, writer = await store.dial()
        assert writer.get_extra_info("peername") == store.address
        writer.transport.abort()

    asyncio.run(run())
    assert "127.0.0.1" not in capfd.readouterr().out
