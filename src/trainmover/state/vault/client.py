# SPDX-License-Identifier: Apache-2.0
"""A worker's connection to a vault: blocking, usable from several threads.

One lock, requests answered in order, so an ack that nobody waited for is simply the next reply.
`close` takes no lock: it must be able to wake a thread that waits inside one.
"""

import threading
from collections.abc import Callable

from trainmover.errors import PeerLost, ProtocolError, UserError
from trainmover.listeners import sealed_link
from trainmover.listeners.dial import dial
from trainmover.protocol.malformed import MALFORMED
from trainmover.state.vault import wire
from trainmover.state.vault.store import Record

_DONE = wire.encoder.encode(wire.Done())


class VaultClient:
    """Once the vault is gone or `close` was called, all methods raise PeerLost: make a new one."""

    def __init__(
        self,
        address: str,
        token: bytes,
        *,
        connect_timeout_s: float = 5.0,
        by_thread: bool = False,
    ) -> None:
        """Connects. Raises PeerLost, or ProtocolError for who is not this job's vault there.

        by_thread: see `sealed_link.over`
        """
        self._address = address
        link, session = dial(
            address, token=token, purpose=wire.PURPOSE, timeout_s=connect_timeout_s
        )
        self._link = sealed_link.over(link, session, by_thread=by_thread)
        self._replies: list[bytes] = []
        self._acks_due = 0
        self._refusal: wire.Refused | None = None
        self._epoch = 0  # Of the newest record.
        self._outdated = False
        self._gone = ""  # Why, once it is.
        self._lock = threading.Lock()

    def put_record(
        self,
        rank: int,
        step: int,
        complete: bool,
        data: bytes,
        *,
        epoch: int = 0,
        wait: bool = True,
    ) -> None:
        """Have the vault keep a rank record; with `wait`, return when it says that it does.

        Raises UserError if the vault is full: at once with `wait`, else from the next call. A vault
        that knows a newer epoch keeps nothing: with `wait` that is a PeerLost, else `wait_acks`
        waits until it is cancelled, as it will be.
        """
        with self._lock:
            if epoch != self._epoch:
                self._take_acks()
                self._epoch, self._outdated = epoch, False
            self._send(wire.PutRecord(rank, step, complete, data, epoch))
            self._acks_due += 1
            if wait:
                self._take_acks()
                self._raise_refusal()
                if self._outdated:
                    raise self._lost("it knows that members have changed since")

    def wait_acks(self, cancelled: Callable[[], bool]) -> bool:
        """Wait for every put that did not wait. False if `cancelled()` became true first."""
        with self._lock:
            if self._gone:
                raise self._lost(self._gone)
            while self._acks_due:
                if not self._replies and not self._receive():
                    if cancelled():
                        return False
                elif (said := self._replies.pop(0)) == _DONE:  # No call: at each step's gate.
                    self._acks_due -= 1
                else:
                    self._take_ack(said)
            self._raise_refusal()
            while self._outdated:
                if cancelled():
                    return False
                self._receive()
            return True

    def get_record(self, rank: int, step: int) -> Record | None:
        match self._request(wire.GetRecord(rank, step)):
            case wire.RecordFound(step, complete, data):
                return Record(step, complete, data)
            case wire.Nothing():
                return None
        raise self._broken()

    def records_held(self) -> dict[int, list[int]]:
        """Steps held of each rank, ascending."""
        reply = self._request(wire.ListRecords())
        if not isinstance(reply, wire.RecordsHeld):
            raise self._broken()
        return reply.steps

    def put_blob(self, name: str, data: bytes | bytearray | memoryview) -> None:
        """Have the vault keep a blob; returns when it does. Raises UserError if it does not fit."""
        view, part_bytes = memoryview(data), wire.BLOB_PART_BYTES
        for offset in range(0, max(1, len(view)), part_bytes):
            part = view[offset : offset + part_bytes]
            self._request(wire.PutBlob(name, offset, len(view), part))

    def get_blob(self, name: str) -> bytes | bytearray | None:
        """The blob as it was when reading began. One thread at a time may read blobs."""
        blob = bytearray()
        while True:
            match self._request(wire.GetBlob(name, len(blob))):
                case wire.Nothing():
                    return None
                case wire.BlobPart(total, data):
                    blob += data
                case _:
                    raise self._broken()
            if len(blob) >= total:
                return blob
            if not data:
                raise self._broken()

    def throw_away(self, data: bytes) -> None:
        """Send bytes that nobody keeps; returns when they are there."""
        self._request(wire.ThrowAway(memoryview(data)))

    @property
    def alive(self) -> bool:
        """False once the vault was found gone, or this connection was closed."""
        return not self._gone

    def close(self) -> None:
        """End the connection, from any thread; whoever waits gets PeerLost."""
        self._gone = "it was closed here"
        self._link.close()

    def _request(self, request: wire.Request) -> wire.Reply:
        with self._lock:
            self._send(request)
            self._take_acks()
            reply = self._decoded(self._take_reply())
            self._raise_refusal(reply)
            return reply

    def _send(self, request: wire.Request) -> None:
        if self._gone:
            raise self._lost(self._gone)
        try:
            self._link.say(wire.encoder.encode(request))
        except (OSError, EOFError) as error:
            raise self._lost(str(error)) from error

    def _take_acks(self) -> None:
        while self._acks_due:
            self._take_ack(self._take_reply())

    def _take_ack(self, said: bytes) -> None:
        self._acks_due -= 1
        if said == _DONE:
            return
        reply = self._decoded(said)
        if isinstance(reply, wire.Refused):
            self._refusal = reply  # Raised when no reply is left in flight.
        elif isinstance(reply, wire.Outdated):
            self._outdated = True
        elif not isinstance(reply, wire.Done):
            raise self._broken()

    def _raise_refusal(self, reply: wire.Reply | None = None) -> None:
        refusal, self._refusal = self._refusal, None
        if isinstance(reply, wire.Refused):
            refusal = reply
        if refusal is not None:
            raise UserError(refusal.happened, means=refusal.means, do=refusal.do)

    def _take_reply(self) -> bytes:
        while not self._replies:
            self._receive()
        return self._replies.pop(0)

    def _decoded(self, said: bytes) -> wire.Reply:
        try:
            reply: wire.Reply = wire.reply_decoder.decode(said)
        except MALFORMED as error:
            raise self._broken() from error
        return reply

    def _receive(self) -> bool:
        """Take what has come, or comes in a moment. False: nothing."""
        if self._gone:
            raise self._lost(self._gone)
        try:
            come = self._link.hear()
        except ProtocolError as error:  # The vault is not to blame, and not to be heard either.
            raise self._lost(error.happened.rstrip(".")) from error
        except EOFError as error:
            raise self._lost("the connection was closed") from error
        except OSError as error:
            raise self._lost(str(error)) from error
        self._replies += come
        return bool(come)

    def _lost(self, why: str) -> PeerLost:
        self._gone = self._gone or why
        return PeerLost(
            f"The vault at {self._address} is gone: {self._gone}.",
            means="Records put there may be lost with it.",
            do="Nothing by hand: the controller names another machine to keep them.",
        )

    def _broken(self) -> ProtocolError:
        return ProtocolError(
            f"The vault at {self._address} sent a reply that makes no sense here.",
            means="Nothing was taken from it.",
            do="All processes of a job must run the same version of trainmover.",
        )
