"""What goes from device to device arrives, or travels over TCP; nobody waits or writes for ever.

The pair of ends is one within this process: letters in a box, which can be held up.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import pytest
import torch
from torch import Tensor
from transfers import KEY, TOKEN, fetch_into

from trainmover.errors import PeerLost, ProtocolError, StateMismatch
from trainmover.listeners.dial import dial
from trainmover.state.proof.digest import hashes_of
from trainmover.state.transfer import Direct, Offered, StateServer, direct, wire

Over = Callable[[], bool]


@dataclass
class Box:
    """What lies between two ends, and what goes wrong there.

    open     letters arrive
    changes  a bit of each
    deaf     an end that is closed is lost
    """

    letters: SimpleQueue[Tensor] = field(default_factory=SimpleQueue)
    open: threading.Event = field(default_factory=threading.Event)
    moving: threading.Event = field(default_factory=threading.Event)
    changes: bool = False
    deaf: bool = False
    closed: list[int] = field(default_factory=list)


class End:
    lost = False

    def __init__(self, box: Box, seat: int) -> None:
        self._box, self._seat = box, seat

    def holds(self, tensor: Tensor) -> bool:
        return tensor.is_contiguous() and tensor.dtype != torch.bool

    def send(self, tensors: Sequence[Tensor], over: Over) -> Iterator[int]:
        for tensor in tensors:
            self._await(over)
            letter = tensor.clone()
            if self._box.changes:
                letter.view(torch.uint8).view(-1)[0] ^= 1
            self._box.letters.put(letter)
            yield tensor.nbytes

    def receive(self, tensors: Sequence[Tensor], over: Over) -> Iterator[int]:
        for tensor in tensors:
            while True:
                try:
                    tensor.copy_(self._box.letters.get(timeout=0.01))
                    break
                except Empty:
                    self._check(over)
            yield tensor.nbytes

    def _await(self, over: Over) -> None:
        self._box.moving.set()
        while not self._box.open.wait(0.01):
            self._check(over)

    def _check(self, over: Over) -> None:
        if over():
            self.close()
            raise PeerLost("the other end is gone")

    def close(self) -> None:
        self.lost = self._box.deaf
        self._box.closed.append(self._seat)


class Pairing:
    def __init__(self, box: Box, card: str = "this kind") -> None:
        self._box, self._card = box, card

    def card(self) -> str:
        return self._card

    def unique_id(self) -> str:
        return "the id"

    def check(self, theirs: str) -> None:
        if theirs != self._card:
            raise PeerLost("they may not connect")

    def connect(self, unique_id: str, seat: int, over: Over) -> End:
        if unique_id != "the id":
            raise PeerLost("another id")
        return End(self._box, seat)


@pytest.fixture
def box() -> Box:
    box = Box()
    box.open.set()
    return box


@pytest.fixture
def server(box: Box) -> Iterator[StateServer]:
    server = StateServer(TOKEN, pairings=lambda: Pairing(box))
    yield server
    server.close()


@pytest.fixture
def client(box: Box, server: StateServer) -> Iterator[Direct]:
    client = Direct(TOKEN, lambda: Pairing(box))
    client.open(server.address)
    yield client
    client.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def given() -> list[Tensor]:
    return [
        torch.randn(300, 7),
        torch.randn(30, 40).t(),
        torch.randn(1000).bfloat16(),
        torch.tensor([True, False]),
    ]


def offer(server: StateServer, tensors: list[Tensor]) -> None:
    hashes = hashes_of(tensors)
    server.offer(KEY, lambda: Offered(b"", tensors, "these", hashes))


def empty(tensors: list[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(tensor) for tensor in tensors]


def receive(client: Direct, tensors: list[Tensor], told: list[int] | None = None) -> list[int]:
    here = told if told is not None else []
    return client.receive(KEY, dict(enumerate(tensors)), threading.Event(), here.append)


def test_what_fits_goes_from_device_to_device(server: StateServer, client: Direct) -> None:
    sent = given()
    got, told = empty(sent), list[int]()
    offer(server, sent)
    assert client.leads_to(server.address)
    assert receive(client, got, told) == [0, 2]
    assert torch.equal(got[0], sent[0])
    assert torch.equal(got[2], sent[2])
    assert not got[1].any()
    assert told == [sent[0].nbytes, sent[0].nbytes + sent[2].nbytes]


def test_however_long_it_takes(
    box: Box, server: StateServer, client: Direct, pool: ThreadPoolExecutor
) -> None:
    box.open.clear()
    sent = given()
    got = empty(sent)
    offer(server, sent)
    coming = pool.submit(receive, client, got)
    box.moving.wait()
    time.sleep(0.1)
    box.open.set()
    assert coming.result() == [0, 2]
    assert torch.equal(got[0], sent[0])


def test_as_often_as_it_is_asked_for(server: StateServer, client: Direct) -> None:
    sent = given()
    offer(server, sent)
    assert receive(client, empty(sent)) == [0, 2]
    got = empty(sent)
    assert receive(client, got[:1]) == [0]
    assert torch.equal(got[0], sent[0])


def test_the_rest_and_what_was_changed_on_the_way_goes_over_tcp(
    box: Box, server: StateServer, client: Direct
) -> None:
    box.changes = True
    sent = given()
    got = empty(sent)
    offer(server, sent)

    def holds(tensors: Sequence[Tensor]) -> list[bytes]:
        came = receive(client, list(tensors))
        assert came == [0, 2]
        return [own if n in came else b"" for n, own in enumerate(hashes_of(tensors))]

    report = fetch_into(got, server.address, holds=holds)
    assert report.kept == frozenset()
    assert all(torch.equal(a, b) for a, b in zip(got, sent, strict=True))


def test_where_the_other_end_holds_other_sizes_nothing_is_taken(
    server: StateServer, client: Direct
) -> None:
    offer(server, given())
    assert receive(client, [torch.zeros(5)]) == []
    assert not client.leads_to(server.address)


def test_an_offer_is_withdrawn_only_when_nobody_reads_it_any_more(
    box: Box, server: StateServer, client: Direct, pool: ThreadPoolExecutor
) -> None:
    box.open.clear()
    sent = given()
    offer(server, sent)
    coming = pool.submit(receive, client, empty(sent))
    box.moving.wait()
    server.withdraw(KEY)
    assert 0 in box.closed
    assert coming.result() == []


def test_who_receives_is_let_go(
    box: Box, server: StateServer, client: Direct, pool: ThreadPoolExecutor
) -> None:
    box.open.clear()
    sent = given()
    offer(server, sent)
    coming = pool.submit(receive, client, empty(sent))
    box.moving.wait()
    client.cancel()
    assert coming.result() == []
    assert 1 in box.closed


def test_memory_that_may_still_be_written_to_is_no_place_for_a_rank(
    box: Box, server: StateServer, client: Direct, pool: ThreadPoolExecutor
) -> None:
    box.open.clear()
    box.deaf = True
    offer(server, given())
    coming = pool.submit(receive, client, empty(given()))
    box.moving.wait()
    client.cancel()
    with pytest.raises(StateMismatch, match="could not be ended"):
        coming.result()


def test_a_source_without_a_device_says_so(box: Box) -> None:
    server = StateServer(TOKEN)
    client = Direct(TOKEN, lambda: Pairing(box))
    try:
        with pytest.raises(PeerLost, match="no device"):
            client.open(server.address)
    finally:
        client.close()
        server.close()


def test_a_joiner_without_a_device_asks_nobody(server: StateServer) -> None:
    client = Direct(TOKEN, lambda: None)
    client.open(server.address)
    assert not client.leads_to(server.address)
    assert receive(client, given()) == []


def test_ends_that_may_not_connect_do_not(box: Box, server: StateServer) -> None:
    client = Direct(TOKEN, lambda: Pairing(box, "another kind"))
    with pytest.raises(PeerLost, match="may not connect"):
        client.open(server.address)
    assert not client.leads_to(server.address)
    client.close()


def test_one_that_comes_too_late_is_not_kept(
    box: Box, server: StateServer, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    client = Direct(TOKEN, lambda: Pairing(box))
    connecting, may_go_on = threading.Event(), threading.Event()

    def connect(self: Pairing, unique_id: str, seat: int, over: Over) -> End:
        if seat == 1:
            connecting.set()
            may_go_on.wait()
        return End(box, seat)

    monkeypatch.setattr(Pairing, "connect", connect)
    opening = pool.submit(client.open, server.address)
    connecting.wait()
    assert not client.leads_to(server.address)
    may_go_on.set()
    opening.result()
    assert 1 in box.closed
    assert not client.leads_to(server.address)


@pytest.mark.parametrize("numbers", [[7], [0, 4]], ids=["one", "with others"])
def test_a_tensor_that_does_not_exist_ends_the_connection_and_nothing_else(
    server: StateServer, client: Direct, numbers: list[int]
) -> None:
    sent = given()
    offer(server, sent)
    assert client.receive(KEY, {n: sent[0] for n in numbers}, threading.Event(), print) == []
    got = empty(sent)
    fetch_into(got, server.address)
    assert torch.equal(got[0], sent[0])


@pytest.mark.parametrize(
    "said", [b"", b"\xc1", wire.wanted_bytes(wire.Wanted("x", header=True))], ids=repr
)
def test_what_makes_no_sense_ends_the_connection_and_nothing_else(
    server: StateServer, said: bytes
) -> None:
    link, session = dial(server.address, token=TOKEN, purpose=wire.PURPOSE)
    link.sendall(session.seal(wire.wanted_bytes(wire.Wanted(direct.KEY, header=False))))
    link.sendall(session.seal(said))
    assert link.recv(1) == b""
    link.close()
    sent = given()
    offer(server, sent)
    got = empty(sent)
    fetch_into(got, server.address)
    assert torch.equal(got[0], sent[0])


def test_a_source_that_makes_no_sense_is_left(box: Box) -> None:
    class Liar(direct.Source):
        def meet(self) -> None:
            self._link.say(direct.Sizes([1]))

    client = Direct(TOKEN, lambda: Pairing(box))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct, "Source", Liar)
        server = StateServer(TOKEN, pairings=lambda: Pairing(box))
        try:
            with pytest.raises(ProtocolError, match="out of order"):
                client.open(server.address)
        finally:
            client.close()
            server.close()
