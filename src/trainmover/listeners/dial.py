# SPDX-License-Identifier: Apache-2.0
"""Blocking connections between processes of one job, for threads: dial and hello.

Both ends prove that they know the job's token (protocol.hello) before anything else is read. In a
job with TLS that is what they say first inside it.
"""

import contextlib
import secrets
import socket
import time
from typing import TYPE_CHECKING

from trainmover.errors import PeerLost
from trainmover.listeners.place import there
from trainmover.protocol.framing import FRAME_BYTES_MAX
from trainmover.protocol.hello import NONCE_BYTES, Dialler, End
from trainmover.protocol.sealed import HEAD_BYTES, Session

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls

HELLO_TIMEOUT_S = 5.0
_DIALS_MAX = 5
"""Others that have proved nothing may push us out of it before we have answered."""
_tls: "Tls | None" = None


def dial_in_tls(tls: "Tls | None") -> None:
    """From now on, in this process: all listeners of its job are to speak TLS, or none."""
    global _tls
    _tls = tls


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[v6]:port"."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def dial(
    address: str, *, token: bytes, purpose: str, timeout_s: float = HELLO_TIMEOUT_S
) -> tuple[socket.socket, Session]:
    """A blocking connection to the service `purpose` at `address`; the caller closes it.

    Raises PeerLost if nobody answers within `timeout_s`, ProtocolError if who does is not the
    job's, or not at that address.
    """
    deadline = time.monotonic() + timeout_s
    for _ in range(_DIALS_MAX - 1):
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            return _connected(address, token, purpose, deadline)
    try:
        return _connected(address, token, purpose, deadline)
    except OSError as error:
        raise _unreachable(address, purpose, error) from error


def _connected(
    address: str, token: bytes, purpose: str, deadline: float
) -> tuple[socket.socket, Session]:
    """Raises PeerLost, ProtocolError, or OSError if the listener hung up during the hello."""
    try:
        left_s = max(0.001, deadline - time.monotonic())
        link = socket.create_connection(parse_address(address), left_s)
    except OSError as error:
        raise _unreachable(address, purpose, error) from error
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _tls is not None:
            link = _tls.dial(link, parse_address(address)[0], purpose)
        hello = Dialler(token, End(purpose, there(link)), secrets.token_bytes(NONCE_BYTES))
        _say(link, hello, deadline)
        link.settimeout(None)
    except (ConnectionResetError, BrokenPipeError):
        link.close()
        raise
    except OSError as error:
        link.close()
        raise _unreachable(address, purpose, error) from error
    except BaseException:
        link.close()
        raise
    return link, hello.session


def _say(link: socket.socket, hello: Dialler, deadline: float) -> None:
    """Raises ProtocolError, or OSError at the deadline (time.monotonic)."""
    link.sendall(hello.opening)
    while not hello.proved:
        try:
            data = _part(link, hello.missing, deadline)
        except ConnectionError as error:
            raise hello.ended(error) from error
        reply = hello.hear(data)
        if hello.error is not None:
            with contextlib.suppress(OSError):  # It need not hear that it is refused.
                link.sendall(reply)
            raise hello.error
        link.sendall(reply)


def receive(link: socket.socket, count: int, deadline: float) -> bytes:
    """Exactly `count` bytes. Raises OSError at the deadline (time.monotonic) or a stream's end."""
    data = b""
    while len(data) < count:
        data += _part(link, count - len(data), deadline)
    return data


def hear(
    link: socket.socket, session: Session, deadline: float, *, bytes_max: int = FRAME_BYTES_MAX
) -> memoryview:
    """The payload of the next sealed frame. Raises as `receive` does, and ProtocolError."""
    head = receive(link, HEAD_BYTES, deadline)
    return session.opened(receive(link, session.length(head, bytes_max=bytes_max), deadline))


def _part(link: socket.socket, most: int, deadline: float) -> bytes:
    """What has come. Raises OSError if nothing comes until the deadline, or never will."""
    link.settimeout(max(0.001, deadline - time.monotonic()))
    part = link.recv(most)
    if not part:
        raise ConnectionResetError("the connection was closed")
    return part


def _unreachable(address: str, purpose: str, error: OSError) -> PeerLost:
    return PeerLost(
        f"The {purpose} service at {address} cannot be reached: {error}.",
        means="Its process is gone or stopped, or the network between the two is down.",
        do="Nothing by hand: the job takes another source, or reports that there is none.",
    )
