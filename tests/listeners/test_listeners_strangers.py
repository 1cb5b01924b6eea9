"""Strangers at every listener of a job: they cost nothing, and keep nobody out."""

import itertools
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from open_listeners import LISTENERS, WAIT_S, Opened, opened

from trainmover.descriptors import shares
from trainmover.protocol.unauthenticated import PATIENCE_S

STRANGERS = 1000
NOISE = {
    "noise": os.urandom(100_000),
    "zeros": bytes(100_000),
    "an endless line": b"GET /" + b"x" * 100_000,
    "endless headers": b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
    "no token": b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n",
    "a long body": b"POST /api/v1/move HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n",
}


def say(link: socket.socket, data: bytes) -> bool:
    """Whether it could be said."""
    try:
        link.sendall(data)
    except (ConnectionError, TimeoutError):
        return False
    return True


def hung_up(link: socket.socket) -> bool:
    """Whether the other side has; what it had said before is read away."""
    link.setblocking(False)
    try:
        while link.recv(65536):
            pass
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except (ConnectionError, ssl.SSLError):
        pass
    finally:
        link.settimeout(WAIT_S)
    return True


def await_end(link: socket.socket) -> None:
    """Until the other side hangs up."""
    with suppress(ConnectionError):
        while link.recv(65536):
            pass


@pytest.mark.parametrize("noise", NOISE)
def test_noise_is_hung_up_on(listener: Opened, sockets: ExitStack, noise: str) -> None:
    link = sockets.enter_context(listener.knock())
    say(link, NOISE[noise])
    listener.enter()
    await_end(link)


def shake_hands(listener: Opened) -> ssl.SSLSocket:
    """As anybody can, who knows nothing of the job."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(listener.knock())


def client_hello() -> bytes:
    """What a handshake begins with."""
    said = ssl.MemoryBIO()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(
        ssl.MemoryBIO(), said, server_hostname="127.0.0.1"
    )
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return said.read()


@contextmanager
def all_listeners(folder: Path) -> Iterator[list[Opened]]:
    with ExitStack() as stack:
        yield [stack.enter_context(opened(name, folder / f"{name}.sqlite")) for name in LISTENERS]


def test_nobody_stands_at_a_listener_for_long(tmp_path: Path, sockets: ExitStack) -> None:
    """Who says nothing, half a hello, a byte of a handshake now and then, or nothing behind a whole
    handshake has to go in the end."""
    with all_listeners(tmp_path) as listeners:
        silent, half, slow = (
            [sockets.enter_context(listener.knock()) for listener in listeners] for _ in range(3)
        )
        shaken = [
            sockets.enter_context(shake_hands(listener)) for listener in listeners if listener.files
        ]
        handshake = client_hello()
        begun = time.monotonic()
        for link in half:
            say(link, b"G" * 40)
        standing = [*silent, *half, *slow, *shaken]
        for said in itertools.count():
            assert time.monotonic() - begun < WAIT_S, f"{len(standing)} still stand there"
            for link in slow:
                say(link, handshake[said : said + 1])
            time.sleep(PATIENCE_S / 20)
            standing = [link for link in standing if not hung_up(link)]
            if not standing:
                break
        for listener in listeners:
            listener.enter()


def test_strangers_keep_nobody_out(listener: Opened, sockets: ExitStack) -> None:
    """Of 1,000 that connect and hold on, a listener lets some stand, and members come in."""
    links = []
    for number in range(STRANGERS):
        links.append(sockets.enter_context(listener.knock()))
        if number % 100 == 99:
            listener.enter()
    assert sum(not hung_up(link) for link in links) <= shares().strangers
    listener.enter()


def test_strangers_that_knock_without_end_keep_nobody_out(listener: Opened) -> None:
    """Four strangers that connect again as soon as they can."""
    over = threading.Event()

    def knock() -> None:
        links: list[socket.socket] = []
        while not over.is_set():
            with suppress(OSError):
                links.append(listener.knock())
            for link in links[:-300]:
                link.close()
            del links[:-300]
        for link in links:
            link.close()

    threads = [threading.Thread(target=knock) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            listener.enter()
    finally:
        over.set()
        for thread in threads:
            thread.join()
