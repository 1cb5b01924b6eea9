"""One connection to the controller: frames to and fro, without copies that are not needed.

What `FrameLink` hears it says to two callables, on the loop: it never awaits, so that a relayed
order leaves in the same turn of the loop in which it came.
"""

import asyncio
import os
import socket
from collections.abc import Callable

from trainmover.errors import PeerLost, ProtocolError
from trainmover.protocol.framing import FrameReader, frame
from trainmover.protocol.hello import (
    ANSWER_BYTES,
    CHALLENGE_BYTES,
    REFUSAL,
    answer,
    check_answer,
)

CONNECT_S_MAX = 5.0
DIALS_MAX = 5
PURPOSE = "controller"


class FrameLink(asyncio.Protocol):
    """heard(payload) for every frame; lost(reason, alien) once, "" when the peer just closed.

    alien: what came was nothing that a controller says.
    """

    def __init__(self, heard: Callable[[bytes], None], lost: Callable[[str, bool], None]) -> None:
        self._heard = heard
        self._lost = lost
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._reason = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for payload in self._reader.feed(data):
                self._heard(payload)
        except ProtocolError as error:
            self._reason = error.happened
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost(self._reason or (str(exc) if exc else ""), bool(self._reason))

    def send(self, payload: bytes) -> None:
        """Frame and write; a link that is gone swallows it, `lost` has told."""
        self.send_framed(frame(payload))

    def send_framed(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Write what is queued, then close."""
        if self._transport is not None:
            self._transport.close()


async def dial(address: str, token: bytes, *, purpose: str = PURPOSE) -> socket.socket:
    """A non-blocking connection to the controller, or what else `purpose` names; both ends proved.

    Raises PeerLost, or ProtocolError for a wrong token.
    """
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_S_MAX):
            return await _proved(loop, host, int(port), token, purpose)
    except (OSError, TimeoutError, ValueError) as error:
        raise PeerLost(
            f"The controller at {address} could not be reached: {str(error) or 'no answer'}.",
            means="This machine is not part of the job.",
            do="Check --controller, and that the job runs.",
        ) from error


async def _proved(
    loop: asyncio.AbstractEventLoop, host: str, port: int, token: bytes, purpose: str
) -> socket.socket:
    """A crowd at the door may push us out of it before we have answered: then we come again."""
    for dials in range(1, DIALS_MAX + 1):
        sock = await _connect(loop, host, port)
        try:
            await _prove(loop, sock, token, purpose)
        except ConnectionError:
            sock.close()
            if dials == DIALS_MAX:
                raise
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise AssertionError("unreachable")


async def _connect(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setblocking(False)
    try:
        await loop.sock_connect(sock, (host.strip("[]"), port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


async def _prove(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, token: bytes, purpose: str
) -> None:
    theirs = await _read_exactly(loop, sock, CHALLENGE_BYTES)
    mine = os.urandom(CHALLENGE_BYTES)
    await loop.sock_sendall(sock, answer(token, theirs, purpose) + mine)
    given = await _read_exactly(loop, sock, ANSWER_BYTES)
    if given == REFUSAL:
        raise ProtocolError(
            "The controller refused the connection: this token is not the job's.",
            means="This machine is not part of the job; the job did not notice.",
            do="Use the job's token file (--token-file).",
        )
    check_answer(token, mine, purpose, given)


async def _read_exactly(loop: asyncio.AbstractEventLoop, sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = await loop.sock_recv(sock, count - len(data))
        if not more:
            raise ConnectionError("the connection was closed")
        data += more
    return data
