# SPDX-License-Identifier: Apache-2.0
"""State from one device to another, without the hosts between: over a pair of ends that somebody
else makes (`comm.nccl.pair`).

    client -> server   hello (purpose "state"), and as what it wants the key `direct`
    client -> server   its card, and the id of the pair
    server -> client   its card, if the two can connect at all. Both make their ends, while training
                       goes on
    client -> server   of which offer it wants which tensors, as often as it likes
    server -> client   their sizes, for each; 0: it does not go this way. Then the tensors go from
                       device to device, in this order

Nothing is believed of what has come: it is compared with the hashes that the offer's opening has
told over its own connection, and whatever differs, or has not come, travels over TCP. So all that
can go wrong here costs is time. A source that may not be read from any more, and a client that
wants no more, hang up.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec
from torch import Tensor

from trainmover.errors import PeerLost, ProtocolError, StateMismatch, TrainmoverError
from trainmover.listeners.dial import HELLO_TIMEOUT_S, dial, hear
from trainmover.protocol.malformed import MALFORMED
from trainmover.protocol.sealed import Session
from trainmover.state.transfer import wire

KEY = "direct"
CONNECT_S = 15.0
"""So long both ends may take to connect, while training goes on."""
SILENCE_S = 30.0
ANSWER_S = 5.0
"""For which a source that has opened its offer may say nothing about it."""
_BYTES_MAX = 16 * 1024 * 1024


class End(Protocol):
    """See `comm.nccl.pair.Pair`."""

    lost: bool

    def holds(self, tensor: Tensor) -> bool: ...

    def send(self, tensors: Sequence[Tensor], over: Callable[[], bool]) -> Iterator[int]: ...

    def receive(self, tensors: Sequence[Tensor], over: Callable[[], bool]) -> Iterator[int]: ...

    def close(self) -> None: ...


class Pairing(Protocol):
    """See `comm.nccl.pair.Pairing`."""

    def card(self) -> str: ...

    def unique_id(self) -> str: ...

    def check(self, theirs: str) -> None: ...

    def connect(self, unique_id: str, seat: int, over: Callable[[], bool]) -> End: ...


Pairings = Callable[[], Pairing | None]
"""How this process makes an end; None: it has no device of which another could take something."""


class Meet(msgspec.Struct, array_like=True, tag=3):
    card: str
    unique_id: str = ""


class Ask(msgspec.Struct, array_like=True, tag=4):
    """tensors: their numbers in the offer."""

    key: str
    tensors: list[int]


class Sizes(msgspec.Struct, array_like=True, tag=5):
    """Of the tensors asked for, in bytes."""

    sizes: list[int]


Word = TypeVar("Word", Meet, Ask, Sizes)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Meet | Ask | Sizes | wire.Unable)


class _Link:
    """One connection, at either end."""

    def __init__(self, link: socket.socket, session: Session) -> None:
        self.link, self._session = link, session

    def say(self, word: Meet | Ask | Sizes | wire.Unable) -> None:
        self.send(self._session.seal(_encoder.encode(word), bytes_max=_BYTES_MAX))

    def send(self, sealed: bytes) -> None:
        try:
            self.link.sendall(sealed)
        except OSError as error:
            raise _gone(str(error)) from error

    def hear(self, kind: type[Word], patience_s: float) -> Word:
        """Raises PeerLost, or ProtocolError for anything else."""
        deadline = time.monotonic() + patience_s
        try:
            payload = hear(self.link, self._session, deadline, bytes_max=_BYTES_MAX)
            word = _decoder.decode(payload)
        except OSError as error:
            raise _gone(str(error)) from error
        except MALFORMED as error:
            raise ProtocolError("What came about state between devices makes no sense.") from error
        self.link.settimeout(None)
        if isinstance(word, wire.Unable):
            raise PeerLost(word.happened, means=word.means, do=word.do)
        if not isinstance(word, kind):
            raise ProtocolError("What came about state between devices is out of order.")
        return word

    def await_word(self) -> None:
        """However long that takes; also until the other end hangs up."""
        self.link.recv(1, socket.MSG_PEEK)

    def is_gone(self) -> bool:
        """Whether the other end has hung up, or this one has."""
        try:
            return not self.link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):  # Already gone: what we wanted.
            self.link.shutdown(socket.SHUT_RDWR)


class _Moving:
    """Tensors on their way."""

    def __init__(self, link: _Link, cancelled: threading.Event | None = None) -> None:
        self._link, self._cancelled = link, cancelled
        self._heard_s = time.monotonic()

    def came(self) -> None:
        """Some of them."""
        self._heard_s = time.monotonic()

    def over(self) -> bool:
        """Whether the others will not come."""
        silent = time.monotonic() - self._heard_s > SILENCE_S
        cancelled = self._cancelled is not None and self._cancelled.is_set()
        return silent or cancelled or self._link.is_gone()


class Source:
    """The server's side of one connection; in a thread of its own."""

    def __init__(self, link: socket.socket, session: Session, pairings: Pairings) -> None:
        self._link = _Link(link, session)
        self._pairings = pairings
        self._end: End | None = None

    def meet(self) -> None:
        """Make an end with the client. Raises PeerLost or ProtocolError."""
        theirs = self._link.hear(Meet, HELLO_TIMEOUT_S)
        try:
            pairing = self._pairings()
            if pairing is None:
                raise _no_device()
            pairing.check(theirs.card)
        except PeerLost as error:
            self.refuse(error)
            raise
        self._link.say(Meet(pairing.card()))
        deadline = time.monotonic() + CONNECT_S
        self._end = pairing.connect(
            theirs.unique_id, 0, lambda: time.monotonic() >= deadline or self._link.is_gone()
        )

    def asked(self) -> Ask:
        """What the client wants next, whenever that is. Raises PeerLost once it has hung up."""
        self._link.await_word()
        return self._link.hear(Ask, HELLO_TIMEOUT_S)

    def refuse(self, error: TrainmoverError) -> None:
        self._link.say(wire.Unable(error.happened, error.means, error.do))

    def give(self, tensors: Sequence[Tensor], numbers: Sequence[int]) -> None:
        """Raises PeerLost; ProtocolError for a number that there is not. On return, and after an
        exception, nobody reads the tensors any more."""
        assert self._end is not None
        if any(number >= len(tensors) or number < 0 for number in numbers):
            raise ProtocolError("A client of state asked for a tensor that does not exist.")
        asked = [tensors[number] for number in numbers]
        fits = [tensor for tensor in asked if self._end.holds(tensor)]
        self._link.say(Sizes([one.nbytes if self._end.holds(one) else 0 for one in asked]))
        moving = _Moving(self._link)
        for _ in self._end.send(fits, moving.over):
            moving.came()

    def close(self) -> None:
        if self._end is not None:
            self._end.close()


class Direct:
    """The client's side: one source, from before the pause of a move to its end.

    bytes  that have come
    """

    def __init__(self, token: bytes, pairings: Pairings) -> None:
        self.bytes = 0
        self._token = token
        self._pairings = pairings
        self._lock = threading.Lock()
        self._attempt = 0  # The one that counts.
        self._closed = False
        self._address = ""
        self._link: _Link | None = None
        self._end: End | None = None

    def open(self, address: str) -> None:
        """Make an end with the source there, in a thread that may wait.

        Raises PeerLost or ProtocolError where the two cannot connect.
        """
        pairing = self._pairings()
        attempt = self._drop()
        if pairing is None or self._closed:
            return
        connection, session = dial(address, token=self._token, purpose=wire.PURPOSE)
        link = _Link(connection, session)
        end: End | None = None
        try:
            end = self._connected(link, session, pairing, attempt)
        finally:
            with self._lock:
                wanted = end is not None and attempt == self._attempt
                if wanted:
                    self._address, self._link, self._end = address, link, end
            if not wanted:
                _end(link, end)

    def _connected(self, link: _Link, session: Session, pairing: Pairing, attempt: int) -> End:
        wanted = wire.wanted_bytes(wire.Wanted(KEY, header=False))
        link.send(session.seal(wanted))
        unique_id = pairing.unique_id()
        link.say(Meet(pairing.card(), unique_id))
        pairing.check(link.hear(Meet, HELLO_TIMEOUT_S).card)
        deadline = time.monotonic() + CONNECT_S

        def over() -> bool:
            late = time.monotonic() >= deadline
            return late or attempt != self._attempt or link.is_gone()

        return pairing.connect(unique_id, 1, over)

    def leads_to(self, address: str) -> bool:
        """Whether the source there is at the other end. If not, it will not be any more."""
        with self._lock:
            leads = self._end is not None and self._address == address
        if not leads:
            self._drop()
        return leads

    def receive(
        self,
        key: str,
        tensors: Mapping[int, Tensor],
        cancelled: threading.Event,
        told: Callable[[int], None],
    ) -> list[int]:
        """Fetch tensors of an offer, by number. Which have come: they are still to be compared.
        None where the other end is lost on the way: then they hold anything.

        told: called with the bytes that have come so far
        Raises StateMismatch if something may still write to them.
        """
        with self._lock:
            link, end = self._link, self._end
        if link is None or end is None:
            return []
        here = [n for n, tensor in tensors.items() if not tensor.is_meta]
        asked = [number for number in here if end.holds(tensors[number])]
        if not asked:
            return []
        try:
            link.say(Ask(key, asked))
            sizes = link.hear(Sizes, ANSWER_S).sizes
            fits = [n for n, size in zip(asked, sizes, strict=True) if size]
            if [tensors[n].nbytes for n in fits] != [size for size in sizes if size]:
                raise _gone("it holds tensors of other sizes")
            moving = _Moving(link, cancelled)
            for count in end.receive([tensors[n] for n in fits], moving.over):
                moving.came()
                self.bytes += count
                told(self.bytes)
        except (TrainmoverError, ValueError):
            self._drop()
            if end.lost:
                raise _stuck() from None
            return []
        return fits

    def cancel(self) -> None:
        """Whoever receives is to stop soon, or need not begin. Called by any thread."""
        with self._lock:
            self._attempt += 1
            if self._link is not None:
                self._link.hang_up()

    def close(self) -> None:
        """Hang up, and give the pair back, for good."""
        self._closed = True
        self._drop()

    def _drop(self) -> int:
        """What there is. Number of the attempt that may come next."""
        with self._lock:
            link, end, self._address = self._link, self._end, ""
            self._link = self._end = None
            self._attempt += 1
            attempt = self._attempt
        if link is not None:
            _end(link, end)
        return attempt


def _end(link: _Link, end: End | None) -> None:
    link.link.close()
    if end is not None:
        end.close()


def _gone(why: str) -> PeerLost:
    return PeerLost(
        f"The other end of a pair of devices is gone: {why}.",
        means="State goes over TCP instead.",
        do="Nothing by hand.",
    )


def _stuck() -> StateMismatch:
    return StateMismatch(
        "A transfer to this process's device could not be ended.",
        means="Its memory could still be written to: this process cannot take the rank.",
        do="Nothing by hand: another standby takes it. If it happens again, look at this GPU.",
    )


def _no_device() -> PeerLost:
    return PeerLost(
        "The source has no device of which a joiner could take its state.",
        means="State goes over TCP instead.",
        do="Nothing by hand.",
    )
