"""To look for gloo's sockets changes nothing of anybody's."""

import os
import socket
from collections.abc import Iterator

import pytest

from trainmover.comm.gloo import sockets


@pytest.fixture
def default_timeout() -> Iterator[None]:
    """As scripts that download something set it."""
    socket.setdefaulttimeout(0.3)
    yield
    socket.setdefaulttimeout(None)


@pytest.mark.usefixtures("default_timeout")
def test_sockets_that_block_go_on_to_block() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as plain:
        for one in (listener, plain):
            os.set_blocking(one.fileno(), True)
        found = {own.fd: address for own, address in sockets._listeners().items()}
        host, port = listener.getsockname()
        assert found[listener.fileno()] == f"{host} {port}"
        assert all(os.get_blocking(one.fileno()) for one in (listener, plain))
