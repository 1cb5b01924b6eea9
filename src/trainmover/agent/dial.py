# SPDX-License-Identifier: Apache-2.0
"""Dialling on an event loop: a connection whose ends have both proved that they know the token.

In a job with TLS who listens is known by its certificate before that is said.
"""

import asyncio
import secrets
from typing import TYPE_CHECKING, NamedTuple

from trainmover.errors import PeerLost
from trainmover.listeners.place import there
from trainmover.listeners.reach import connect
from trainmover.protocol.hello import NONCE_BYTES, Dialler, End
from trainmover.protocol.sealed import Session
from trainmover.splice import Ends

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls

CONNECT_S_MAX = 5.0
DIALS_MAX = 5
FIRST_S_MAX = 30.0
PURPOSE = "controller"


class Dialled(NamedTuple):
    """A connection whose ends are both proved. It is not read from yet: see `FrameLink.take` and
    `streams`."""

    transport: asyncio.Transport
    session: Session


async def dial(
    address: str,
    token: bytes,
    tls: "Tls | None" = None,
    *,
    purpose: str = PURPOSE,
    me: str = "",
    whom: str = "",
) -> Dialled:
    """A connection to the controller, or what else `purpose` names. me, whom: see `hello.End`.

    Raises PeerLost, or ProtocolError for a listener that is not the job's, or not at that address.
    """
    try:
        async with asyncio.timeout(CONNECT_S_MAX):
            return await _proved(address, token, tls, (purpose, me, whom))
    except (OSError, TimeoutError, ValueError) as error:
        raise PeerLost(
            f"The controller at {address} could not be reached: {str(error) or 'no answer'}.",
            means="This machine is not part of the job.",
            do="Check --controller, and that the job runs.",
        ) from error


async def dial_first(
    address: str, token: bytes, tls: "Tls | None" = None, *, me: str, within_s: float = FIRST_S_MAX
) -> Dialled:
    """Dial the controller as an agent that begins: one that is busy may answer later.

    Raises PeerLost at once where nobody listens, and if no answer comes in `within_s`.
    """
    until_s = asyncio.get_running_loop().time() + within_s
    while True:
        try:
            return await dial(address, token, tls, me=me)
        except PeerLost as lost:
            late = asyncio.get_running_loop().time() >= until_s
            if late or not isinstance(lost.__cause__, TimeoutError):
                raise


def streams(transport: asyncio.Transport) -> Ends:
    """Of a connection that was dialled."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    transport.resume_reading()
    return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())


async def _proved(
    address: str, token: bytes, tls: "Tls | None", names: tuple[str, str, str]
) -> Dialled:
    """Others that have proved nothing may push us out before we have answered: we come again."""
    for dials in range(1, DIALS_MAX + 1):
        hello = _Hello(token, names)
        transport = await connect(address, hello, tls, names[0])
        try:
            dialled = await hello.done
            if not transport.is_closing():
                return dialled
            # Whoever takes it over now would never be told: that was told already.
            raise ConnectionResetError("the connection was closed behind the proof")
        except ConnectionError:
            if dials == DIALS_MAX:
                raise
        except BaseException:
            transport.abort()
            raise
    raise AssertionError("unreachable")


class _Hello(asyncio.Protocol):
    """done: what has been dialled, once both ends are proved, or why there is none."""

    def __init__(self, token: bytes, names: tuple[str, str, str]) -> None:
        self.done: asyncio.Future[Dialled] = asyncio.get_running_loop().create_future()
        self._token = token
        self._names = names
        self._hello: Dialler | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        service, me, whom = self._names
        try:
            where = there(transport.get_extra_info("socket"))
        except OSError:  # It is gone already.
            transport.abort()
            return
        end = End(service, where, me=me, whom=whom)
        self._hello = Dialler(self._token, end, secrets.token_bytes(NONCE_BYTES))
        transport.write(self._hello.opening)

    def data_received(self, data: bytes) -> None:
        hello = self._hello
        if self.done.done() or hello is None:
            return
        self._transport.write(hello.hear(data))
        if hello.error is not None:
            self._transport.close()
            self.done.set_exception(hello.error)
        elif hello.proved:
            self._transport.pause_reading()
            self.done.set_result(Dialled(self._transport, hello.session))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            lost = exc or ConnectionResetError("the connection was closed")
            self.done.set_exception(self._hello.ended(exc) if self._hello else lost)
