"""Dialling the controller: a connection over which both ends have proved that they know the token.

In a job with TLS the controller is known by its certificate before that is said.
"""

import asyncio
import os
from typing import TYPE_CHECKING

from trainmover.errors import PeerLost, ProtocolError
from trainmover.protocol.hello import CHALLENGE_BYTES, Proof
from trainmover.splice import Ends
from trainmover.state.doors.dial import parse_address

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls

CONNECT_S_MAX = 5.0
DIALS_MAX = 5
PURPOSE = "controller"


async def dial(
    address: str, token: bytes, tls: "Tls | None" = None, *, purpose: str = PURPOSE
) -> asyncio.Transport:
    """A connection to the controller, or what else `purpose` names; both ends proved.

    It is not read from yet: see `FrameLink.take` and `streams`.

    Raises PeerLost, or ProtocolError for a wrong token or a certificate that is not the job's.
    """
    try:
        async with asyncio.timeout(CONNECT_S_MAX):
            return await _proved(address, token, tls, purpose)
    except (OSError, TimeoutError, ValueError) as error:
        raise PeerLost(
            f"The controller at {address} could not be reached: {str(error) or 'no answer'}.",
            means="This machine is not part of the job.",
            do="Check --controller, and that the job runs.",
        ) from error


async def connect(
    address: str, protocol: asyncio.Protocol, tls: "Tls | None", purpose: str
) -> asyncio.Transport:
    """Have `protocol` speak with the listener at `address`. Raises OSError."""
    host, port = parse_address(address)
    outer = protocol if tls is None else tls.towards(protocol, host, purpose)
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: outer, host, port)
    return transport


def streams(transport: asyncio.Transport) -> Ends:
    """Of a connection that was dialled."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    transport.resume_reading()
    return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())


async def _proved(address: str, token: bytes, tls: "Tls | None", purpose: str) -> asyncio.Transport:
    """A crowd at the door may push us out of it before we have answered: then we come again."""
    for dials in range(1, DIALS_MAX + 1):
        hello = _Hello(Proof(token, purpose, os.urandom(CHALLENGE_BYTES)))
        transport = await connect(address, hello, tls, purpose)
        try:
            return await hello.connection
        except ConnectionError:
            if dials == DIALS_MAX:
                raise
        except BaseException:
            transport.abort()
            raise
    raise AssertionError("unreachable")


class _Hello(asyncio.Protocol):
    """connection: what has been dialled, once both ends are proved, or why there is none."""

    def __init__(self, proof: Proof) -> None:
        loop = asyncio.get_running_loop()
        self.connection: asyncio.Future[asyncio.Transport] = loop.create_future()
        self._proof = proof

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._proof.challenge)

    def data_received(self, data: bytes) -> None:
        if self.connection.done():
            return
        try:
            self._transport.write(self._proof.hear(data))
        except ProtocolError as error:
            self.connection.set_exception(error)
        if self._proof.proved:
            self._transport.pause_reading()
            self.connection.set_result(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.connection.done():
            self.connection.set_exception(self._proof.ended(exc))
