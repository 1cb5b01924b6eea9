# SPDX-License-Identifier: Apache-2.0
"""The client's end of one connection to a source."""

import contextlib
import socket
import threading
import time
from collections.abc import Sequence

from trainmover.errors import PeerLost, ProtocolError
from trainmover.listeners.dial import HELLO_TIMEOUT_S, dial
from trainmover.protocol.sealed import HEAD_BYTES, MARK_BYTES, Session
from trainmover.state import chunks
from trainmover.state.transfer import wire


class Stream:
    """Used by a thread of its own, which blocks; any other ends that with `hang_up`.

    heard_s  when it last had what it waited for (time.monotonic)
    waits    whether it waits for the source now, and not for work
    bytes    of chunks that came
    """

    def __init__(self, address: str, *, timeout_s: float) -> None:
        self.address = address
        self.heard_s = time.monotonic()
        self.waits = True
        self.bytes = 0
        self._connect_s = min(timeout_s, HELLO_TIMEOUT_S)
        self._begun_s = self.heard_s
        self._lock = threading.Lock()
        self._link: socket.socket | None = None
        self._why = ""
        self._first: Sequence[int] = ()
        self._session: Session | None = None
        self._mark = memoryview(bytearray(MARK_BYTES))

    def open(self, wanted: wire.Wanted, token: bytes) -> wire.Opening:
        """Connect, and wait until the source offers what is wanted.

        Raises PeerLost, and what `dial` and `read_opening` raise.
        """
        link, session = dial(
            self.address, token=token, purpose=wire.PURPOSE, timeout_s=self._connect_s
        )
        with self._lock:
            self._link, self._session = link, session
            if self._why:  # Hung up while it dialled.
                raise self.lost("")
        self._say(wire.wanted_bytes(wanted))
        head = bytearray(HEAD_BYTES)
        self._read([memoryview(head)])
        rest = bytearray(session.length(bytes(head), bytes_max=wire.HEADER_BYTES_MAX))
        self._read([memoryview(rest)])
        self._begun_s, self.waits = time.monotonic(), False
        return wire.read_opening(session.opened(rest))

    @property
    def bytes_s(self) -> float:
        """Its speed so far."""
        return self.bytes / max(1e-6, self.heard_s - self._begun_s)

    def begin(self, first: Sequence[int]) -> None:
        """first: numbers that go before those of chunks"""
        self._first = first

    def ask(self, numbers: Sequence[int]) -> None:
        """For chunks, which then come in this order. Raises PeerLost."""
        if not self.waits:
            self.heard_s, self.waits = time.monotonic(), True
        self._say(b"".join(map(wire.NUMBER.pack, [*self._first, *numbers])))
        self._first = ()

    def read_chunk(self, number: int, buffer: memoryview) -> None:
        """The next chunk asked for. Raises PeerLost, or StateMismatch if it is not whole."""
        assert self._session is not None
        self._read([buffer, self._mark])
        try:
            self._session.hears.check(self._mark, chunks.checksum(number, buffer))
        except ProtocolError as error:
            raise wire.corrupted(self.address) from error
        self.bytes += len(buffer)

    def hang_up(self, why: str = "") -> None:
        """Whoever reads is told that the source is lost, and why."""
        with self._lock:
            self._why = self._why or why
            if self._link is not None:
                with contextlib.suppress(OSError):  # Already gone: what we wanted.
                    self._link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """By the thread that reads, when it has done so for the last time."""
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            link.close()

    def lost(self, why: str) -> PeerLost:
        return PeerLost(
            f"The state source at {self.address} is lost: {self._why or why}.",
            means="What it had not sent yet must come from another one.",
            do="Nothing by hand: the job takes another source, or reports that there is none.",
        )

    def _say(self, payload: bytes) -> None:
        assert self._link is not None
        assert self._session is not None
        try:
            self._link.sendall(self._session.seal(payload, bytes_max=wire.ASKED_BYTES_MAX))
        except OSError as error:
            raise self.lost(str(error)) from error

    def _read(self, buffers: list[memoryview]) -> None:
        assert self._link is not None
        while buffers:
            try:
                count = self._link.recvmsg_into(buffers, 0, socket.MSG_WAITALL)[0]
            except OSError as error:
                raise self.lost(str(error)) from error
            if count == 0 and any(len(buffer) for buffer in buffers):
                raise self.lost("it closed the connection")
            self.heard_s = time.monotonic()
            buffers = _beyond(buffers, count)


def _beyond(buffers: list[memoryview], count: int) -> list[memoryview]:
    """What is still to be filled when `count` bytes have come."""
    rest = []
    for buffer in buffers:
        if count < len(buffer):
            rest.append(buffer[count:])
        count = max(0, count - len(buffer))
    return rest
