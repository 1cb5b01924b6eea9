"""Bytes arrive as they were sent or not at all, and nobody waits for a peer that is gone."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from transfers import KEY, MIB, OPENING, TOKEN, Relay, cut, fetch_into, flip, offer

from trainmover.errors import PeerLost, ProtocolError, StateMismatch, UserError
from trainmover.listeners.dial import dial
from trainmover.protocol.sealed import HEAD_BYTES
from trainmover.state.proof.digest import hashes_of
from trainmover.state.transfer import FetchReport, Offered, StateServer, fetch, stream, wire


@pytest.fixture
def server() -> Iterator[StateServer]:
    server = StateServer(TOKEN)
    yield server
    server.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def dialled_in_peace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test gives a source to answer in is not for connecting to it."""

    def patiently(*where: Any, **how: Any) -> Any:
        return dial(*where, **how | {"timeout_s": 30.0})

    monkeypatch.setattr(stream, "dial", patiently)


def assorted() -> list[Tensor]:
    """Large and small, empty, strided, of several types."""
    return [
        torch.randn(700_000),
        *[torch.randn(n % 5, 3) for n in range(400)],
        torch.randn(300, 400).t(),
        torch.randn(3 * MIB // 4 + 1),
        torch.randn(10_000).bfloat16(),
        torch.tensor(3.0),
        torch.tensor([True, False]),
        torch.randn(2, 3, 40, 50).to(memory_format=torch.channels_last),
        torch.empty(0),
        torch.arange(MIB),
    ]


def test_tensors_of_all_kinds_arrive(server: StateServer) -> None:
    sent = assorted()
    got = [torch.zeros_like(tensor) for tensor in sent]
    memory = [tensor.data_ptr() for tensor in got]
    offer(server, sent, b"the header")
    report = fetch_into(got, server.address)
    assert report.header == b"the header"
    assert report.bytes == sum(tensor.nbytes for tensor in sent)
    assert all(torch.equal(a, b) for a, b in zip(got, sent, strict=True))
    assert [tensor.data_ptr() for tensor in report.tensors] == memory


def test_strides_may_differ(server: StateServer) -> None:
    sent = [torch.randn(300, 400), torch.randn(500, 600).t()]
    got = [torch.zeros(400, 300).t(), torch.zeros(600, 500)]
    offer(server, sent)
    fetch_into(got, server.address)
    assert all(torch.equal(a, b) for a, b in zip(got, sent, strict=True))


def test_several_clients_at_once(server: StateServer, pool: ThreadPoolExecutor) -> None:
    sent = [torch.randn(MIB), torch.randn(10)]
    offer(server, sent)
    results = [[torch.empty_like(tensor) for tensor in sent] for _ in range(4)]
    list(pool.map(lambda got: fetch_into(got, server.address), results))
    assert all(torch.equal(got[0], sent[0]) for got in results)


def test_a_client_waits_for_the_offer(server: StateServer, pool: ThreadPoolExecutor) -> None:
    got = [torch.zeros(3)]
    waiting = pool.submit(fetch_into, got, server.address)
    server.offer("step 6", lambda: Offered(b"", [torch.zeros(3)]))
    assert not waiting.done()
    offer(server, [torch.ones(3)])
    waiting.result(30)
    assert torch.equal(got[0], torch.ones(3))


@pytest.mark.usefixtures("dialled_in_peace")
def test_a_client_gives_up_when_nothing_is_offered(server: StateServer) -> None:
    with pytest.raises(PeerLost, match=r"nothing came for 0\.1 s"):
        fetch_into([], server.address, timeout_s=0.1)


def test_a_withdrawn_offer_is_not_served(server: StateServer) -> None:
    offer(server, [])
    server.withdraw(KEY)
    server.withdraw("never offered")
    with pytest.raises(PeerLost):
        fetch_into([], server.address, timeout_s=0.1)


def test_a_waiting_client_can_be_cancelled(server: StateServer, pool: ThreadPoolExecutor) -> None:
    cancelled = threading.Event()
    waiting = pool.submit(fetch_into, [], server.address, cancelled=cancelled)
    cancelled.set()
    with pytest.raises(PeerLost, match="cancelled"):
        waiting.result(30)


End = Callable[[StateServer], None]


@pytest.mark.parametrize("end", [StateServer.close, lambda s: s.withdraw(KEY)])
def test_a_transfer_under_way_ends_with_its_offer(
    server: StateServer, pool: ThreadPoolExecutor, end: End
) -> None:
    """The client does not read, so the server is in the middle of the tensor for sure."""
    tensor, asked, ended = torch.zeros(16 * MIB), threading.Event(), threading.Event()
    offer(server, [tensor])

    def into(header: bytes) -> list[Tensor]:
        asked.set()
        assert ended.wait(30)
        return [torch.empty_like(tensor)]

    def read() -> FetchReport:
        return fetch(
            [server.address],
            token=TOKEN,
            key=KEY,
            into=into,
            cancelled=threading.Event(),
            timeout_s=30,
        )

    reading = pool.submit(read)
    assert asked.wait(30)
    end(server)
    ended.set()
    with pytest.raises(PeerLost, match="lost"):
        reading.result(30)


def test_a_client_that_hangs_up_leaves_no_thread(server: StateServer) -> None:
    before = threading.active_count()
    with pytest.raises(PeerLost):
        fetch_into([], server.address, timeout_s=0.05)
    gone = threading.Event()
    for _ in range(600):
        if threading.active_count() <= before:
            gone.set()
            break
        gone.wait(0.05)
    assert gone.is_set()


def test_a_wrong_token_is_refused(server: StateServer) -> None:
    offer(server, [])
    with pytest.raises(ProtocolError, match="token"):
        fetch_into([], server.address, token=b"u" * 16)
    fetch_into([], server.address)


def test_nobody_listens(server: StateServer) -> None:
    server.close()
    with pytest.raises(PeerLost, match="cannot be reached"):
        fetch_into([], server.address)


def test_other_sizes_are_refused(server: StateServer) -> None:
    offer(server, [torch.ones(3), torch.ones(4)])
    with pytest.raises(StateMismatch, match="number 1"):
        fetch_into([torch.zeros(3), torch.zeros(5)], server.address)
    with pytest.raises(StateMismatch, match="number 1"):
        fetch_into([torch.zeros(3)], server.address)


def test_a_source_that_cannot_says_so(server: StateServer) -> None:
    def unable() -> Offered:
        raise UserError("state holds a function", do="leave it out")

    server.offer(KEY, unable)
    with pytest.raises(UserError, match="state holds a function"):
        fetch_into([], server.address)


HELLO, CHUNKS = OPENING - HEAD_BYTES, OPENING + 200


@pytest.mark.parametrize("place", [0, 60, HELLO - 1, HELLO, HELLO + 9, OPENING + 3, OPENING + 120])
def test_what_frames_it_was_changed_on_the_wire(server: StateServer, place: int) -> None:
    """The hello, and the opening with its header."""
    offer(server, [torch.zeros(10)], b"h" * 100)
    with Relay(server.address, flip(place)) as relay, pytest.raises(ProtocolError):
        fetch_into([torch.zeros(10)], relay.address)


@pytest.mark.parametrize("place", [CHUNKS, 100_000, 2 * MIB + 500, 4 * MIB + 90])
def test_changed_bytes_are_noticed(server: StateServer, place: int) -> None:
    tensor = torch.zeros(MIB + 3)
    offer(server, [tensor], b"h" * 100)
    with Relay(server.address, flip(place)) as relay, pytest.raises(StateMismatch):
        fetch_into([torch.empty_like(tensor)], relay.address)


@pytest.mark.parametrize("place", [0, 10, OPENING + 3, 5000, 2 * MIB])
def test_a_source_that_dies_is_noticed(server: StateServer, place: int) -> None:
    tensor = torch.zeros(MIB)
    offer(server, [tensor], b"h")
    with Relay(server.address, cut(place)) as relay, pytest.raises(PeerLost):
        fetch_into([torch.empty_like(tensor)], relay.address)


@pytest.mark.usefixtures("dialled_in_peace")
def test_a_source_that_falls_silent_is_noticed(server: StateServer) -> None:
    tensor = torch.zeros(MIB)
    offer(server, [tensor])
    with (
        Relay(server.address, silent_after=2 * MIB) as relay,
        pytest.raises(PeerLost, match=r"nothing came for 0\.3 s"),
    ):
        fetch_into([torch.empty_like(tensor)], relay.address, timeout_s=0.3)


def test_the_owner_is_asked_once(server: StateServer, pool: ThreadPoolExecutor) -> None:
    """However many clients and connections there are: what it does may take long."""
    asked, sent = [], torch.randn(12 * MIB)

    def offered() -> Offered:
        asked.append(1)
        return Offered(b"", [sent])

    server.offer(KEY, offered)
    into = [[torch.empty_like(sent)] for _ in range(3)]
    list(pool.map(lambda got: fetch_into(got, server.address, streams=4), into))
    assert asked == [1]
    assert all(torch.equal(got[0], sent) for got in into)


@pytest.mark.parametrize(
    "asked",
    [b"\xff\xff\xff\xff", bytes(4) + b"\xff\xff\xff\xff", bytes(4) + b"\1\0\0\0", bytes(6)],
)
def test_who_asks_for_what_does_not_exist_is_hung_up_on(server: StateServer, asked: bytes) -> None:
    offer(server, [torch.ones(3)])
    link, session = dial(server.address, token=TOKEN, purpose=wire.PURPOSE)
    with link:
        link.sendall(session.seal(wire.wanted_bytes(wire.Wanted(KEY, header=True))))
        link.sendall(session.seal(asked))
        link.settimeout(30)
        while link.recv(65536):
            pass
    got = torch.zeros(3)
    fetch_into([got], server.address)
    assert torch.equal(got, torch.ones(3))


def test_what_the_client_has_is_not_sent(server: StateServer) -> None:
    """Small ones between those that are sent; one that looks the same and is not; one for which
    there is no place."""
    sent = assorted()
    hashes = hashes_of(sent)
    got = [tensor.clone() if n % 2 else torch.zeros_like(tensor) for n, tensor in enumerate(sent)]
    got[1] = got[1] + 1.0
    got[-2] = torch.empty_like(sent[-2], device="meta")
    server.offer(KEY, lambda: Offered(b"", sent, hashes=hashes))
    report = fetch_into(
        got,
        server.address,
        holds=lambda its: [b"" if t.is_meta else hashes_of([t])[0] for t in its],
    )
    assert all(torch.equal(a, b) for a, b in zip(got, sent, strict=True) if not a.is_meta)
    same = {n for n in range(len(sent)) if n % 2} - {1, len(sent) - 2}
    assert report.kept >= same
    missing = set(range(len(sent) - 2)) - report.kept | {len(sent) - 1} - report.kept
    assert report.bytes == sum(sent[n].nbytes for n in missing)


@pytest.mark.parametrize("ask_all", [False, True])
def test_who_has_no_place_for_any_gets_the_header(server: StateServer, *, ask_all: bool) -> None:
    sent = assorted()
    server.offer(KEY, lambda: Offered(b"of others", sent))
    report = fetch_into([], server.address, into=lambda header: None, ask_all=ask_all)
    assert (report.header, report.tensors, report.bytes) == (b"of others", [], 0)


def test_live_tensors_are_sent_as_they_are_at_some_moment(
    server: StateServer, pool: ThreadPoolExecutor
) -> None:
    """Whoever writes to them meanwhile does not make it seem that the wire lies."""
    sent, got, over = torch.zeros(8 * MIB), torch.ones(8 * MIB), threading.Event()
    server.offer(KEY, lambda: Offered(b"", [sent], live=True))

    def write() -> None:
        while not over.is_set():
            sent.add_(1.0)

    writing = pool.submit(write)
    try:
        fetch_into([got], server.address)
    finally:
        over.set()
    writing.result()
    assert got[::1024].max() <= sent.max()
