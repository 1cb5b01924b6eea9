# SPDX-License-Identifier: Apache-2.0
"""The source's side: serves what its owner offers to whoever knows the token."""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from torch import Tensor

from trainmover.descriptors import shares
from trainmover.errors import ProtocolError, TrainmoverError
from trainmover.listeners.dial import HELLO_TIMEOUT_S, format_address, hear
from trainmover.listeners.thread_listener import ThreadListener
from trainmover.protocol.sealed import SealedReader, Session
from trainmover.protocol.unauthenticated import QUEUE
from trainmover.state import chunks
from trainmover.state.transfer import direct, wire
from trainmover.state.transfer.allowance import Pacer

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls

_REQUEST_BYTES = 4096
_POLL_S = 0.05  # How long a client that hung up before there was an offer may go unnoticed.


@dataclass(frozen=True)
class Offered:
    """What a source gives. Until it is withdrawn, nobody writes to its tensors.

    header  what a client needs to know of the tensors
    alike   equal in two sources if and only if their tensors are, bit for bit and in order: then
            both can serve one fetch. "": nobody else has these
    hashes  of the tensors (`digest`), for clients that may have some of them; empty: not known
    proof   what every client is told, also one that has no use for the header
    live    somebody may write to the tensors all the same: what is sent is of some moment
    """

    header: bytes
    tensors: list[Tensor]
    alike: str = ""
    hashes: Sequence[bytes] = ()
    live: bool = False
    proof: bytes = b""


Offer = Callable[[], Offered]
"""Called in a thread of the server, when the first client is there or each; by one at a time."""


class StateServer:
    """One thread for each connection that has proved the token.

    bytes_s   what all of them together may send in a second; 0: no limit
    pairings  by which tensors of a device go to another device, see `direct`; no limit holds there
    """

    def __init__(
        self,
        token: bytes,
        bind: str = "127.0.0.1",
        port: int = 0,
        *,
        bytes_s: float = 0,
        tls: "Tls | None" = None,
        pairings: direct.Pairings = lambda: None,
    ) -> None:
        listener = socket.create_server((bind, port), backlog=QUEUE)
        self.address = format_address(*listener.getsockname()[:2])
        self._listener = ThreadListener(listener, token, wire.PURPOSE, self._let_in, tls)
        self._pacer = Pacer(bytes_s)
        self._pairings = pairings
        self._changed = threading.Condition()
        self._offers: dict[str, _Given] = {}
        self._readers: dict[socket.socket, str] = {}  # Key that each client is being sent.
        self._links: dict[socket.socket, threading.Thread] = {}
        self._clients_max = shares().clients
        self._closing = False
        self._listener.open("state server")

    def offer(self, key: str, offer: Offer, *, anew: bool = False) -> None:
        """Let clients have it, those that wait for the key already included.

        anew: each client gets what the offer is when it comes
        """
        with self._changed:
            self._offers[key] = _Given(offer, anew=anew)
            self._changed.notify_all()

    def withdraw(self, key: str) -> None:
        """Stop serving `key`, at once. On return nobody reads its tensors any more."""
        with self._changed:
            self._offers.pop(key, None)
            for link, reading in self._readers.items():
                if reading == key:
                    _hang_up(link)
            self._changed.wait_for(lambda: key not in self._readers.values())

    def close(self) -> None:
        """End all threads and connections. On return nobody reads any tensor."""
        with self._changed:
            self._closing = True
            self._offers.clear()
            threads = list(self._links.values())
            for link in self._links:
                _hang_up(link)
            self._changed.notify_all()
        for thread in threads:
            thread.join()
        self._listener.close()

    def _let_in(self, link: socket.socket, session: Session) -> None:
        with self._changed:
            if self._closing or len(self._links) >= self._clients_max:
                link.close()
                return
            thread = threading.Thread(
                target=self._attend, args=(link, session), name="state client", daemon=True
            )
            self._links[link] = thread
            thread.start()

    def _attend(self, link: socket.socket, session: Session) -> None:
        try:
            wanted = _read_wanted(link, session)
            link.settimeout(None)
            if wanted.key == direct.KEY:
                self._send_direct(link, session)
            elif given := self._await_offer(link, wanted.key):
                self._send(link, session, given, wanted)
        except (OSError, TrainmoverError):
            pass  # The client is gone, or none of ours: it learns from the closed connection.
        finally:
            with self._changed:
                self._readers.pop(link, None)
                self._links.pop(link, None)
                self._changed.notify_all()
            link.close()

    def _await_offer(self, link: socket.socket, key: str) -> "_Given | None":
        """None once the client hung up or this server closes."""
        with self._changed:
            while not self._closing:
                given = self._offers.get(key)
                if given is not None:
                    self._readers[link] = key
                    return given
                self._changed.wait(_POLL_S)
                if _has_hung_up(link):
                    break
        return None

    def _send(
        self, link: socket.socket, session: Session, given: "_Given", wanted: wire.Wanted
    ) -> None:
        with contextlib.suppress(OSError):  # Not every kernel has it. bbr is slow to neighbours.
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        try:
            offered, source = given.now()
        except TrainmoverError as error:
            unable = wire.Unable(error.happened, error.means, error.do)
            _say(link, session, unable)
            return
        header = offered.header if wanted.header else b""
        hashes = b"".join(offered.hashes)
        opening = wire.Opening(header, source.sizes, offered.alike, hashes, offered.proof)
        _say(link, session, opening)
        numbers = _numbers(link, session)
        kept = frozenset(islice(numbers, _below(next(numbers, 0), len(source.sizes) + 1)))
        cut = list(chunks.cut(chunks.without(source.sizes, kept)))
        for number in numbers:
            payload = source.payload(cut[_below(number, len(cut))])
            self._send_chunk(link, session, number, bytes(payload) if offered.live else payload)

    def _send_direct(self, link: socket.socket, session: Session) -> None:
        """From device to device, as often as the client asks."""
        source = direct.Source(link, session, self._pairings)
        try:
            source.meet()
            while True:
                asked = source.asked()
                given = self._await_offer(link, asked.key)
                if given is None:
                    return
                try:
                    offered, _ = given.now()
                except TrainmoverError as error:
                    source.refuse(error)
                    return
                source.give(offered.tensors, asked.tensors)
                with self._changed:
                    self._readers.pop(link, None)
                    self._changed.notify_all()
        finally:
            source.close()

    def _send_chunk(
        self, link: socket.socket, session: Session, number: int, payload: bytes | memoryview
    ) -> None:
        self._pacer.wait(len(payload))
        mark = session.says.next(chunks.checksum(number, payload))
        _send_both(link, memoryview(payload), mark)


class _Given:
    """An offer, and what came of it."""

    def __init__(self, offer: Offer, *, anew: bool) -> None:
        self._offer = offer
        self._anew = anew
        self._lock = threading.Lock()
        self._result: tuple[Offered, chunks.Source] | TrainmoverError | None = None

    def now(self) -> tuple[Offered, chunks.Source]:
        """Ask for it, once if that will do. Raises TrainmoverError whenever the owner did."""
        with self._lock:
            if self._result is None:
                result = self._asked()
                self._result = None if self._anew else result
            else:
                result = self._result
        if isinstance(result, TrainmoverError):
            raise result
        return result

    def _asked(self) -> tuple[Offered, chunks.Source] | TrainmoverError:
        try:
            offered = self._offer()
            return offered, chunks.Source(offered.tensors)
        except TrainmoverError as error:
            return error


def _read_wanted(link: socket.socket, session: Session) -> wire.Wanted:
    """A client says at once what it wants."""
    deadline = time.monotonic() + HELLO_TIMEOUT_S
    return wire.read_wanted(hear(link, session, deadline, bytes_max=wire.WANTED_BYTES_MAX))


def _say(link: socket.socket, session: Session, opening: wire.Opening | wire.Unable) -> None:
    payload = wire.opening_bytes(opening)
    link.sendall(session.seal(payload, bytes_max=wire.HEADER_BYTES_MAX))


def _numbers(link: socket.socket, session: Session) -> Iterator[int]:
    """What the client says, until it hangs up. Raises ProtocolError."""
    reader = SealedReader(session, bytes_max=wire.ASKED_BYTES_MAX)
    while data := link.recv(_REQUEST_BYTES):
        for payload in reader.feed(data):
            if len(payload) % wire.NUMBER.size:
                raise ProtocolError("A client of state asked for a part of a number.")
            for (number,) in wire.NUMBER.iter_unpack(payload):
                yield number


def _below(number: int, limit: int) -> int:
    """Raises ProtocolError."""
    if number >= limit:
        raise ProtocolError("A client of state asked for a chunk that does not exist.")
    return number


def _send_both(link: socket.socket, payload: memoryview, tail: bytes) -> None:
    """In one go, without copying the payload to put its tail behind it."""
    sent = link.sendmsg([payload, tail])
    link.sendall(payload[sent:])
    link.sendall(tail[max(0, sent - len(payload)) :])


def _hang_up(link: socket.socket) -> None:
    with contextlib.suppress(OSError):  # Already gone: what we wanted.
        link.shutdown(socket.SHUT_RDWR)


def _has_hung_up(link: socket.socket) -> bool:
    readable, _, _ = select.select([link], [], [], 0)
    return bool(readable)  # A client says nothing more before there is an offer.
