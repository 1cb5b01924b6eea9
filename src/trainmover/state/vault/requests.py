# SPDX-License-Identifier: Apache-2.0
"""What one connection asks of a vault, request by request. No sockets."""

from collections.abc import Callable

from trainmover.errors import ProtocolError, UserError
from trainmover.protocol.malformed import MALFORMED
from trainmover.state.vault import wire
from trainmover.state.vault.store import Vault


class Requests:
    """Of one connection: it puts and reads blobs in parts, so its requests hang together.

    come_behind  called with what a neighbour has for the vault's agent
    """

    def __init__(
        self, vault: Vault, come_behind: Callable[[wire.ComeBehind], None] | None = None
    ) -> None:
        self._vault = vault
        self._come_behind = come_behind
        self._incoming = bytearray()  # The blob this connection is putting.
        self._incoming_name = ""
        self._outgoing: bytes | bytearray = b""  # The blob this connection is reading.

    def answer(self, payload: bytes) -> bytes:
        """The reply to one request, both encoded. Raises ProtocolError if it makes no sense."""
        try:
            request = wire.request_decoder.decode(payload)
        except MALFORMED as error:
            raise ProtocolError(f"A vault was asked for what makes no sense: {error}.") from error
        return wire.encoder.encode(self._reply(request))

    def _reply(self, request: wire.Request) -> wire.Reply:
        try:
            match request:
                case wire.PutRecord(rank, step, complete, data, epoch):
                    kept = self._vault.put_record(rank, step, complete, data, epoch)
                    return wire.Done() if kept else wire.Outdated()
                case wire.GetRecord(rank, step):
                    record = self._vault.get_record(rank, step)
                    return wire.RecordFound(*record) if record else wire.Nothing()
                case wire.ListRecords():
                    return wire.RecordsHeld(self._vault.records_held())
                case wire.ThrowAway():
                    return wire.Done()
                case wire.ComeBehind():
                    if self._come_behind is not None:
                        self._come_behind(request)
                    return wire.Done()
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
