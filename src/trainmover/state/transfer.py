"""Moves bulk state from worker to worker, from tensor memory to tensor memory.

    client -> server   hello (purpose "state"), key
    server -> client   when the key is offered: header and sizes of the tensors, chunks, digest

Blocking sockets in threads: while state moves, the training loop of both ends stands still anyway.
The client alone decides how long to wait; a server waits until its client hangs up or its owner
withdraws the offer. What may be read is only what was offered, while it is offered.
"""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import xxhash
from torch import Tensor

from trainmover.errors import (
    PeerLost,
    ProtocolError,
    StateMismatch,
    TrainmoverError,
    UserError,
)
from trainmover.protocol.framing import HEADER, frame, frame_length
from trainmover.state import chunks
from trainmover.state.dial import HELLO_TIMEOUT_S, dial, format_address, greet, receive

PURPOSE = "state"
KEY_BYTES_MAX = 4096
HEADER_BYTES_MAX = 256 * 1024 * 1024
_CONNECTIONS_MAX = 64
_POLL_S = 0.05  # How long a cancelled wait may go unnoticed.

Offer = Callable[[], tuple[bytes, list[Tensor]]]
"""Gives header and tensors when a client is there. Until it is withdrawn, nobody writes to them."""


class _Opening(msgspec.Struct, array_like=True, tag=1):
    header: bytes
    sizes: list[int]  # of the tensors in bytes


class _Unable(msgspec.Struct, array_like=True, tag=2):
    happened: str
    means: str
    do: str


_encoder = msgspec.msgpack.Encoder()
_opening_decoder = msgspec.msgpack.Decoder(_Opening | _Unable)


@dataclass(frozen=True)
class FetchReport:
    """What was fetched.

    bytes    of the tensors
    digest   over header and chunks, as 32 hex digits; the source computed the same
    """

    header: bytes
    tensors: list[Tensor]
    bytes: int
    seconds: float
    digest: str


class StateServer:
    """Serves what its owner offers to whoever knows the token; one thread for each client."""

    def __init__(self, token: bytes, bind: str = "127.0.0.1", port: int = 0) -> None:
        self._token = token
        self._listener = socket.create_server((bind, port))
        self.address = format_address(*self._listener.getsockname()[:2])
        self._changed = threading.Condition()
        self._offers: dict[str, Offer] = {}
        self._readers: dict[socket.socket, str] = {}  # Key that each client is being sent.
        self._links: dict[socket.socket, threading.Thread] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._accept, name="state server", daemon=True)
        self._thread.start()

    def offer(self, key: str, offer: Offer) -> None:
        """Let clients have it, those that wait for the key already included."""
        with self._changed:
            self._offers[key] = offer
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
            _hang_up(self._listener)
            threads = [self._thread, *self._links.values()]
            for link in self._links:
                _hang_up(link)
            self._changed.notify_all()
        for thread in threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                link, _ = self._listener.accept()
            except OSError:
                # Closing, or out of file descriptors: then later clients may fare better.
                time.sleep(_POLL_S)
                continue
            with self._changed:
                if self._closing or len(self._links) >= _CONNECTIONS_MAX:
                    link.close()
                    continue
                thread = threading.Thread(
                    target=self._attend, args=(link,), name="state client", daemon=True
                )
                self._links[link] = thread
                thread.start()

    def _attend(self, link: socket.socket) -> None:
        try:
            greet(link, token=self._token, purpose=PURPOSE)
            key = _read_key(link)
            link.settimeout(None)
            offer = self._await_offer(link, key)
            if offer is not None:
                _send(link, offer)
        except (OSError, ProtocolError):
            pass  # The client is gone, or none of ours: it learns from the closed connection.
        finally:
            with self._changed:
                self._readers.pop(link, None)
                self._links.pop(link, None)
                self._changed.notify_all()
            link.close()

    def _await_offer(self, link: socket.socket, key: str) -> Offer | None:
        """None once the client hung up or this server closes."""
        with self._changed:
            while not self._closing:
                offer = self._offers.get(key)
                if offer is not None:
                    self._readers[link] = key
                    return offer
                self._changed.wait(_POLL_S)
                if _has_hung_up(link):
                    break
        return None


def fetch(
    address: str,
    *,
    token: bytes,
    key: str,
    into: Callable[[bytes], list[Tensor]],
    cancelled: threading.Event,
    timeout_s: float,
) -> FetchReport:
    """Fetch what the server at `address` offers as `key`, waiting for the offer if need be.

    into       given the header, says where to receive the tensors: same sizes, same order
    timeout_s  longest silence of the source, before the offer and after it
    On return the tensors hold the source's bytes, proven by checksums of both ends; after an
    exception they hold anything. Raises PeerLost (source gone, silent, or `cancelled` set),
    StateMismatch (corrupted bytes, other sizes), ProtocolError (token), UserError (the source says
    that its state cannot be sent), and whatever `into` raises.
    """
    begin = time.monotonic()
    connect_s = min(timeout_s, HELLO_TIMEOUT_S)
    with dial(address, token=token, purpose=PURPOSE, timeout_s=connect_s) as link:
        wire = _Wire(link, address, cancelled, timeout_s)
        wire.send(frame(key.encode(), bytes_max=KEY_BYTES_MAX))
        data = wire.read_frame()
        opening = _opened(data)
        tensors = into(opening.header)
        destination = chunks.Destination(tensors)
        if destination.sizes != opening.sizes:
            raise _other_sizes(opening.sizes, destination.sizes)
        digest = _receive_chunks(wire, destination, xxhash.xxh3_128(data))
    return FetchReport(
        header=opening.header,
        tensors=tensors,
        bytes=sum(destination.sizes),
        seconds=time.monotonic() - begin,
        digest=digest,
    )


def _receive_chunks(
    wire: "_Wire", destination: chunks.Destination, digest: "xxhash.xxh3_128"
) -> str:
    expected = memoryview(bytearray(chunks.CHECKSUM_BYTES))
    for chunk in chunks.cut(destination.sizes):
        buffer = destination.buffer(chunk)
        wire.read_into(expected)
        wire.read_into(buffer)
        if chunks.checksum(buffer) != expected:
            raise _corrupted(wire.address)
        digest.update(expected)
        destination.accept(chunk, buffer)
    wire.read_into(expected)
    if digest.digest() != expected:
        raise _corrupted(wire.address)
    return digest.hexdigest()


class _Wire:
    """The client's end of a connection: reads that can be cancelled and notice silence."""

    def __init__(
        self, link: socket.socket, address: str, cancelled: threading.Event, timeout_s: float
    ) -> None:
        self.address = address
        self._link = link
        self._cancelled = cancelled
        self._timeout_s = timeout_s
        link.settimeout(min(_POLL_S, timeout_s))

    def send(self, data: bytes) -> None:
        try:
            self._link.sendall(data)
        except OSError as error:
            raise self._lost(str(error)) from error

    def read_frame(self) -> bytes:
        head = bytearray(HEADER.size)
        self.read_into(memoryview(head))
        body = bytearray(frame_length(bytes(head), bytes_max=HEADER_BYTES_MAX))
        self.read_into(memoryview(body))
        return bytes(body)

    def read_into(self, buffer: memoryview) -> None:
        filled = 0
        deadline = time.monotonic() + self._timeout_s
        while filled < len(buffer):
            try:
                count = self._link.recv_into(buffer[filled:])
            except TimeoutError:
                self._check_wait(deadline)
                continue
            except OSError as error:
                raise self._lost(str(error)) from error
            if count == 0:
                raise self._lost("it closed the connection")
            filled += count
            deadline = time.monotonic() + self._timeout_s

    def _check_wait(self, deadline: float) -> None:
        if self._cancelled.is_set():
            raise self._lost("the fetch was cancelled")
        if time.monotonic() > deadline:
            raise self._lost(f"nothing came for {self._timeout_s:g} s")

    def _lost(self, why: str) -> PeerLost:
        return PeerLost(
            f"The state source at {self.address} is lost: {why}.",
            means="The tensors received so far are of no use.",
            do="Nothing by hand: the job takes another source, or reports that there is none.",
        )


def _send(link: socket.socket, offer: Offer) -> None:
    with contextlib.suppress(OSError):  # Not every kernel has it. bbr is slow between neighbours.
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    try:
        header, tensors = offer()
    except TrainmoverError as error:
        unable = _Unable(error.happened, error.means, error.do)
        link.sendall(frame(_encoder.encode(unable)))
        return
    source = chunks.Source(tensors)
    opening = _encoder.encode(_Opening(header, source.sizes))
    link.sendall(frame(opening, bytes_max=HEADER_BYTES_MAX))
    digest = xxhash.xxh3_128(opening)
    for chunk in chunks.cut(source.sizes):
        payload = source.payload(chunk)
        checksum = chunks.checksum(payload)
        digest.update(checksum)
        _send_both(link, checksum, payload)
    link.sendall(digest.digest())


def _send_both(link: socket.socket, head: bytes, payload: bytes | memoryview) -> None:
    """One packet stream without copying the payload behind its head."""
    sent = link.sendmsg([head, payload])
    if sent < len(head):
        link.sendall(head[sent:])
        sent = len(head)
    link.sendall(memoryview(payload)[sent - len(head) :])


def _read_key(link: socket.socket) -> str:
    """A client says at once what it wants."""
    deadline = time.monotonic() + HELLO_TIMEOUT_S
    length = frame_length(receive(link, HEADER.size, deadline), bytes_max=KEY_BYTES_MAX)
    return receive(link, length, deadline).decode(errors="replace")


def _opened(data: bytes) -> _Opening:
    try:
        opening: _Opening | _Unable = _opening_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise ProtocolError(
            "A state source announced what makes no sense.",
            means="Nothing was taken from it.",
            do="All processes of a job must run the same version of trainmover.",
        ) from error
    if isinstance(opening, _Unable):
        raise UserError(opening.happened, means=opening.means, do=opening.do)
    return opening


def _hang_up(link: socket.socket) -> None:
    with contextlib.suppress(OSError):  # Already gone: what we wanted.
        link.shutdown(socket.SHUT_RDWR)


def _has_hung_up(link: socket.socket) -> bool:
    readable, _, _ = select.select([link], [], [], 0)
    return bool(readable)  # A client sends nothing after its key.


def _corrupted(address: str) -> StateMismatch:
    return StateMismatch(
        f"Bytes from the state source at {address} were changed on their way.",
        means="The tensors received must not be trained on.",
        do="The job fetches again; if it happens again, check memory and network of both machines.",
    )


def _other_sizes(there: list[int], here: list[int]) -> StateMismatch:
    first = next(
        (n for n, (a, b) in enumerate(zip(there, here, strict=False)) if a != b),
        min(len(there), len(here)),
    )
    return StateMismatch(
        f"The source has {len(there)} tensors, here are {len(here)}; they differ from "
        f"number {first} on.",
        means="This process cannot take the rank: it built something else than the source did.",
        do="A script must build the same objects for a rank wherever it runs.",
    )
