"""Bytes arrive as they were sent or not at all, and nobody waits for a peer that is gone."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainmover.errors import PeerLost, ProtocolError, StateMismatch, UserError
from trainmover.state import chunks
from trainmover.state.dial import parse_address
from trainmover.state.transfer import FetchReport, StateServer, fetch

TOKEN = b"t" * 16
MIB = 1024 * 1024


@pytest.fixture
def server() -> Iterator[StateServer]:
    server = StateServer(TOKEN)
    yield server
    server.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def fetch_from(
    address: str,
    tensors: list[Tensor],
    *,
    token: bytes = TOKEN,
    cancelled: threading.Event | None = None,
    timeout_s: float = 30.0,
) -> FetchReport:
    return fetch(
        address,
        token=token,
        key="step 7",
        into=lambda header: tensors,
        cancelled=cancelled or threading.Event(),
        timeout_s=timeout_s,
    )


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
    server.offer("step 7", lambda: (b"the header", sent))
    report = fetch_from(server.address, got)
    assert report.header == b"the header"
    assert report.bytes == sum(tensor.nbytes for tensor in sent)
    assert all(torch.equal(a, b) for a, b in zip(got, sent, strict=True))
    assert [tensor.data_ptr() for tensor in report.tensors] == memory


def test_strides_may_differ(server: StateServer) -> None:
    sent = [torch.randn(300, 400), torch.randn(500, 600).t()]
    got = [torch.zeros(400, 300).t(), torch.zeros(600, 500)]
    server.offer("step 7", lambda: (b"", sent))
    fetch_from(server.address, got)
    assert all(torch.equal(a, b) for a, b in zip(got, sent, strict=True))


def test_the_digest_is_that_of_the_bytes(server: StateServer) -> None:
    tensors = [torch.zeros(10), torch.ones(2 * MIB)]
    server.offer("step 7", lambda: (b"", tensors))
    got = [torch.empty_like(tensor) for tensor in tensors]
    first, again = (fetch_from(server.address, got).digest for _ in range(2))
    tensors[1][5] = 2
    changed = fetch_from(server.address, got).digest
    assert first == again != changed


def test_several_clients_at_once(server: StateServer, pool: ThreadPoolExecutor) -> None:
    sent = [torch.randn(MIB), torch.randn(10)]
    server.offer("step 7", lambda: (b"", sent))
    results = [[torch.empty_like(tensor) for tensor in sent] for _ in range(4)]
    reports = list(pool.map(lambda got: fetch_from(server.address, got), results))
    assert len({report.digest for report in reports}) == 1
    assert all(torch.equal(got[0], sent[0]) for got in results)


def test_a_client_waits_for_the_offer(server: StateServer, pool: ThreadPoolExecutor) -> None:
    got = [torch.zeros(3)]
    waiting = pool.submit(fetch_from, server.address, got)
    server.offer("step 6", lambda: (b"", [torch.zeros(3)]))
    assert not waiting.done()
    server.offer("step 7", lambda: (b"", [torch.ones(3)]))
    waiting.result(30)
    assert torch.equal(got[0], torch.ones(3))


def test_a_client_gives_up_when_nothing_is_offered(server: StateServer) -> None:
    with pytest.raises(PeerLost, match=r"nothing came for 0\.1 s"):
        fetch_from(server.address, [], timeout_s=0.1)


def test_a_withdrawn_offer_is_not_served(server: StateServer) -> None:
    server.offer("step 7", lambda: (b"", []))
    server.withdraw("step 7")
    server.withdraw("never offered")
    with pytest.raises(PeerLost):
        fetch_from(server.address, [], timeout_s=0.1)


def test_a_waiting_client_can_be_cancelled(server: StateServer, pool: ThreadPoolExecutor) -> None:
    cancelled = threading.Event()
    waiting = pool.submit(fetch_from, server.address, [], cancelled=cancelled)
    cancelled.set()
    with pytest.raises(PeerLost, match="cancelled"):
        waiting.result(30)


End = Callable[[StateServer], None]


@pytest.mark.parametrize("end", [StateServer.close, lambda s: s.withdraw("step 7")])
def test_a_transfer_under_way_ends_with_its_offer(
    server: StateServer, pool: ThreadPoolExecutor, end: End
) -> None:
    """The client does not read, so the server is in the middle of the tensor for sure."""
    tensor, asked, ended = torch.zeros(16 * MIB), threading.Event(), threading.Event()
    server.offer("step 7", lambda: (b"", [tensor]))

    def into(header: bytes) -> list[Tensor]:
        asked.set()
        assert ended.wait(30)
        return [torch.empty_like(tensor)]

    def read() -> FetchReport:
        return fetch(
            server.address,
            token=TOKEN,
            key="step 7",
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
        fetch_from(server.address, [], timeout_s=0.05)
    gone = threading.Event()
    for _ in range(600):
        if threading.active_count() <= before:
            gone.set()
            break
        gone.wait(0.05)
    assert gone.is_set()


def test_a_wrong_token_is_refused(server: StateServer) -> None:
    server.offer("step 7", lambda: (b"", []))
    with pytest.raises(ProtocolError, match="token"):
        fetch_from(server.address, [], token=b"u" * 16)
    fetch_from(server.address, [])


def test_nobody_listens(server: StateServer) -> None:
    server.close()
    with pytest.raises(PeerLost, match="cannot be reached"):
        fetch_from(server.address, [])


def test_other_sizes_are_refused(server: StateServer) -> None:
    server.offer("step 7", lambda: (b"", [torch.ones(3), torch.ones(4)]))
    with pytest.raises(StateMismatch, match="number 1"):
        fetch_from(server.address, [torch.zeros(3), torch.zeros(5)])
    with pytest.raises(StateMismatch, match="number 1"):
        fetch_from(server.address, [torch.zeros(3)])


def test_a_source_that_cannot_says_so(server: StateServer) -> None:
    def offer() -> tuple[bytes, list[Tensor]]:
        raise UserError("state holds a function", do="leave it out")

    server.offer("step 7", offer)
    with pytest.raises(UserError, match="state holds a function"):
        fetch_from(server.address, [])


class Relay:
    """Passes a connection on to `address`, with one byte of the answer changed or the end cut."""

    def __init__(self, address: str, *, flip: int | None = None, cut: int | None = None) -> None:
        self._target = parse_address(address)
        self._flip, self._cut = flip, cut
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Relay":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        client, _ = self._listener.accept()
        with client, socket.create_connection(self._target) as source:
            up = threading.Thread(target=self._pass_up, args=(client, source))
            up.start()
            self._pass_down(source, client)
            for link in (source, client):
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
            up.join()

    def _pass_up(self, client: socket.socket, source: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                source.sendall(data)

    def _pass_down(self, source: socket.socket, client: socket.socket) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := bytearray(source.recv(65536)):
                if self._flip is not None and passed <= self._flip < passed + len(data):
                    data[self._flip - passed] ^= 1
                if self._cut is not None and passed + len(data) >= self._cut:
                    client.sendall(data[: self._cut - passed])
                    return
                client.sendall(data)
                passed += len(data)


OPENING = 16 + 32 + 4  # Hello and length of the first frame.


@pytest.mark.parametrize("place", [200, 100_000, 2 * MIB + 500, 4 * MIB + 90, -1])
def test_changed_bytes_are_noticed(server: StateServer, place: int) -> None:
    tensor = torch.zeros(MIB + 3)
    size = tensor.nbytes + 5 * 16 + 16
    server.offer("step 7", lambda: (b"h" * 100, [tensor]))
    flip = place if place >= 0 else OPENING + 112 + size - 16
    with Relay(server.address, flip=flip) as relay, pytest.raises(StateMismatch):
        fetch_from(relay.address, [torch.empty_like(tensor)])


@pytest.mark.parametrize("place", [0, 10, OPENING + 3, 5000, 2 * MIB])
def test_a_source_that_dies_is_noticed(server: StateServer, place: int) -> None:
    tensor = torch.zeros(MIB)
    server.offer("step 7", lambda: (b"h", [tensor]))
    with Relay(server.address, cut=place) as relay, pytest.raises(PeerLost):
        fetch_from(relay.address, [torch.empty_like(tensor)])


@given(st.lists(st.integers(0, 40), max_size=20))
def test_chunks_cover_every_byte_once_in_order(sizes: list[int]) -> None:
    cut = list(chunks.cut(sizes, chunk_bytes=16))
    covered = [(p.tensor, at) for chunk in cut for p in chunk for at in range(p.start, p.stop)]
    assert covered == [(n, at) for n, size in enumerate(sizes) for at in range(size)]
    assert all(0 < sum(p.stop - p.start for p in chunk) <= 16 for chunk in cut)
