"""A vault on a port of the agent's event loop.

Plain asyncio.Protocol, no streams: a record is answered in the callback that received it, which
is on the critical path of every step.
"""

import asyncio
import secrets

import msgspec

from trainmover.errors import ProtocolError, UserError
from trainmover.protocol.framing import FrameReader, frame
from trainmover.protocol.hello import ANSWER_BYTES, CHALLENGE_BYTES
from trainmover.state.dial import HELLO_TIMEOUT_S, REFUSAL, format_address, welcome
from trainmover.state.vault import wire
from trainmover.state.vault.store import Vault

_HELLO_BYTES = ANSWER_BYTES + CHALLENGE_BYTES


class VaultServer:
    """A listening vault; `close` ends the listener and every connection."""

    def __init__(self, server: asyncio.Server, links: "set[_Link]") -> None:
        self._server = server
        self._links = links
        host, port = server.sockets[0].getsockname()[:2]
        self.address = format_address(host, port)

    def close(self) -> None:
        self._server.close()
        for link in list(self._links):
            link.drop()

    async def wait_closed(self) -> None:
        await self._server.wait_closed()


async def serve(vault: Vault, token: bytes, bind: str = "127.0.0.1", port: int = 0) -> VaultServer:
    """Serve `vault` to whoever knows `token`, from the running event loop."""
    links: set[_Link] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Link(vault, token, links), bind, port)
    return VaultServer(server, links)


def address_of(server: VaultServer) -> str:
    return server.address


class _Link(asyncio.Protocol):
    """One connection: first the hello, then requests, each answered at once."""

    def __init__(self, vault: Vault, token: bytes, links: "set[_Link]") -> None:
        self._vault = vault
        self._token = token
        self._links = links
        self._challenge = secrets.token_bytes(CHALLENGE_BYTES)
        self._greeting = b""
        self._known = False
        self._frames = FrameReader()
        self._incoming = bytearray()  # The blob this connection is putting.
        self._incoming_name = ""
        self._outgoing: bytes | bytearray = b""  # The blob this connection is reading.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._links.add(self)
        self._timer = asyncio.get_running_loop().call_later(HELLO_TIMEOUT_S, self.drop)
        transport.write(self._challenge)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._links.discard(self)
        self._incoming = bytearray()

    def drop(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._known:
            data = self._greet(data)
        if not data:
            return
        try:
            for payload in self._frames.feed(data):
                reply = self._answer(wire.request_decoder.decode(payload))
                self._transport.write(frame(wire.encoder.encode(reply)))
        except (ProtocolError, msgspec.MsgspecError):
            self.drop()  # Whoever sends that is not one of us: refuse it, keep everybody else.

    def _greet(self, data: bytes) -> bytes:
        self._greeting += data
        if len(self._greeting) < _HELLO_BYTES:
            return b""
        given, rest = self._greeting[:_HELLO_BYTES], self._greeting[_HELLO_BYTES:]
        reply = welcome(self._token, self._challenge, wire.PURPOSE, given)
        self._timer.cancel()
        self._transport.write(reply)
        if reply == REFUSAL:
            self._transport.close()
            return b""
        self._known = True
        return rest

    def _answer(self, request: wire.Request) -> wire.Reply:
        try:
            match request:
                case wire.PutRecord(rank, step, complete, data):
                    self._vault.put_record(rank, step, complete, data)
                    return wire.Done()
                case wire.GetRecord(rank, step):
                    record = self._vault.get_record(rank, step)
                    return wire.RecordFound(*record) if record else wire.Nothing()
                case wire.ListRecords():
                    return wire.RecordsHeld(self._vault.records_held())
                case wire.PutBlob():
                    return self._put_blob(request)
                case wire.GetBlob(name, offset):
                    return self._get_blob(name, offset)
        except UserError as error:
            return wire.Refused(error.happened, error.means, error.do)

    def _put_blob(self, part: wire.PutBlob) -> wire.Reply:
        if part.offset == 0:
            if part.total > wire.BLOB_BYTES_MAX:
                raise UserError(f"The blob `{part.name}` of {part.total} bytes is too large.")
            self._vault.check_room(part.name, part.total)
            self._incoming, self._incoming_name = bytearray(), part.name
        self._incoming += part.data
        if part.name != self._incoming_name or part.offset + len(part.data) != len(self._incoming):
            raise ProtocolError("A blob's parts came out of order.")
        if len(self._incoming) > part.total:
            raise ProtocolError("A blob is larger than announced.")
        if len(self._incoming) == part.total:
            data, self._incoming = self._incoming, bytearray()
            self._vault.put_blob(part.name, data)
        return wire.Done()

    def _get_blob(self, name: str, offset: int) -> wire.Reply:
        if offset == 0:
            found = self._vault.get_blob(name)
            if found is None:
                return wire.Nothing()
            self._outgoing = found
        part = memoryview(self._outgoing)[offset : offset + wire.BLOB_PART_BYTES]
        reply = wire.BlobPart(len(self._outgoing), part)
        if offset + len(part) >= len(self._outgoing):
            self._outgoing = b""
        return reply
