"""What was acknowledged is there; what waits can be woken; without the token there is nothing."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from transfers import Relay, flip

from trainmover.errors import PeerLost, ProtocolError, UserError
from trainmover.listeners.dial import dial, parse_address
from trainmover.listeners.place import there
from trainmover.protocol.framing import frame
from trainmover.protocol.hello import OPENING_BYTES, PROOF_BYTES, End
from trainmover.state.vault import Vault, VaultClient, VaultServer, serve
from trainmover.state.vault.wire import BLOB_PART_BYTES

TOKEN = b"t" * 16
HELLO = OPENING_BYTES + PROOF_BYTES


@dataclass
class Agent:
    """A vault on an event loop in a thread, as an agent runs it."""

    vault: Vault
    server: VaultServer
    loop: asyncio.AbstractEventLoop

    def stop_answering(self) -> threading.Event:
        """Hold the event loop until the event is set."""
        go_on, holding = threading.Event(), threading.Event()

        def hold() -> None:
            holding.set()
            go_on.wait(30)

        self.loop.call_soon_threadsafe(hold)
        assert holding.wait(30)
        return go_on


@pytest.fixture
def agent() -> Iterator[Agent]:
    loop = asyncio.new_event_loop()
    vault = Vault(bytes_max=64 * 1024 * 1024)
    server = loop.run_until_complete(serve(vault, TOKEN))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield Agent(vault, server, loop)
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.fixture(params=[False, True], ids=["plain", "by_thread"])
def by_thread(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def client(agent: Agent, by_thread: bool) -> Iterator[VaultClient]:
    client = VaultClient(agent.server.address, TOKEN, by_thread=by_thread)
    yield client
    client.close()


def test_the_two_steps_put_last_are_kept() -> None:
    vault = Vault(bytes_max=100)
    for step in (5, 6, 7):
        vault.put_record(3, step, True, bytes([step]) * 4)
    assert vault.records_held() == {3: [6, 7]}
    assert vault.get_record(3, 5) is None
    assert vault.bytes_held == 8
    vault.put_record(3, 7, False, b"x")
    assert vault.get_record(3, 7) == (7, False, b"x")
    assert (vault.records_held(), vault.bytes_held) == ({3: [6, 7]}, 5)


def test_going_back_to_an_older_step_keeps_the_new_record() -> None:
    vault = Vault(bytes_max=100)
    for step in (5, 6, 4):
        vault.put_record(0, step, True, b"")
    assert vault.records_held() == {0: [4, 6]}
    vault.put_record(0, 5, True, b"")
    assert vault.records_held() == {0: [4, 5]}


def test_who_trains_on_in_an_old_epoch_has_nothing_kept() -> None:
    vault = Vault(bytes_max=100)
    assert vault.put_record(0, 5, True, b"x", epoch=2)
    vault.fence(3)
    assert not vault.put_record(0, 6, True, b"x", epoch=2)
    assert vault.records_held() == {0: [5]}
    assert vault.put_record(0, 6, True, b"x", epoch=3)
    vault.clear()
    assert vault.put_record(0, 1, True, b"x", epoch=1)


def test_a_record_of_an_old_epoch_is_never_safe(agent: Agent, client: VaultClient) -> None:
    agent.vault.fence(3)
    client.put_record(0, 6, True, b"x", epoch=2, wait=False)
    asked = iter([False, False, True])
    assert not client.wait_acks(lambda: next(asked))
    client.put_record(0, 6, True, b"x", epoch=3, wait=False)
    assert client.wait_acks(lambda: False)
    assert agent.vault.records_held() == {0: [6]}
    with pytest.raises(PeerLost, match="members have changed"):
        client.put_record(0, 7, True, b"x", epoch=2)


def test_a_full_vault_refuses_and_keeps_what_it_has() -> None:
    vault = Vault(bytes_max=10)
    vault.put_record(0, 1, True, b"12345")
    vault.put_blob("a", b"123")
    with pytest.raises(UserError, match="8 of 10 in use"):
        vault.put_record(1, 1, True, b"123")
    with pytest.raises(UserError, match="`b`"):
        vault.put_blob("b", b"123")
    vault.put_blob("a", b"12345")
    assert (vault.records_held(), vault.bytes_held) == ({0: [1]}, 10)
    assert (vault.get_blob("a"), vault.get_blob("b")) == (b"12345", None)


def test_only_what_is_named_like_a_snapshot_is_dropped_as_one() -> None:
    vault = Vault(bytes_max=100)
    kept = ["snapshot", "snapshot/1", "snapshot/1/x", "snapshot/1/-2", "compiled/1/2"]
    for name in [*kept, "snapshot/1/2"]:
        vault.put_blob(name, b"x")
    vault.drop_snapshots(before=10)
    assert [name for name in [*kept, "snapshot/1/2"] if vault.get_blob(name)] == kept


def test_records_over_a_connection(agent: Agent, client: VaultClient) -> None:
    for step in range(1, 5):
        client.put_record(2, step, step % 2 == 0, b"r" * 10_000, wait=step > 2)
    assert agent.vault.records_held() == {2: [3, 4]}
    assert client.records_held() == {2: [3, 4]}
    assert client.get_record(2, 4) == (4, True, b"r" * 10_000)
    assert client.get_record(2, 1) is None
    assert client.get_record(9, 1) is None


def test_acks_can_be_awaited_later(agent: Agent, client: VaultClient) -> None:
    go_on = agent.stop_answering()
    for rank in range(3):
        client.put_record(rank, 1, True, b"x", wait=False)
    assert client.wait_acks(cancelled=lambda: True) is False
    go_on.set()
    assert client.wait_acks(cancelled=lambda: False) is True
    assert agent.vault.records_held() == {0: [1], 1: [1], 2: [1]}


@pytest.mark.parametrize("size", [0, 1, BLOB_PART_BYTES, 2 * BLOB_PART_BYTES + 3])
def test_blobs_of_any_size(client: VaultClient, size: int) -> None:
    blob = (bytes(range(251)) * (size // 251 + 1))[:size]
    client.put_blob("trace", blob)
    assert client.get_blob("trace") == blob
    assert client.get_blob("other") is None


def test_a_reader_gets_one_version_of_a_blob(agent: Agent, client: VaultClient) -> None:
    old, new = b"a" * (BLOB_PART_BYTES + 1), b"b" * 3 * BLOB_PART_BYTES
    agent.vault.put_blob("trace", old)
    taken = agent.vault.get_blob

    def replace_behind_the_reader(name: str) -> bytes | bytearray | None:
        found = taken(name)
        agent.vault.put_blob(name, new)
        return found

    agent.vault.get_blob = replace_behind_the_reader  # type: ignore[method-assign]
    assert client.get_blob("trace") == old
    assert client.get_blob("trace") == new


def test_a_full_vault_is_the_callers_to_know(client: VaultClient) -> None:
    with pytest.raises(UserError, match="cannot keep"):
        client.put_blob("huge", bytes(65 * 1024 * 1024))
    client.put_blob("fits", bytes(60 * 1024 * 1024))
    with pytest.raises(UserError, match="record of rank 0"):
        client.put_record(0, 1, True, bytes(8 * 1024 * 1024))
    client.put_record(0, 1, True, bytes(8 * 1024 * 1024), wait=False)
    with pytest.raises(UserError, match="record of rank 0"):
        client.records_held()
    assert client.records_held() == {}


def test_close_wakes_a_waiting_put(agent: Agent, client: VaultClient) -> None:
    go_on = agent.stop_answering()
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(client.put_record, 0, 1, True, b"x")
        client.close()
        with pytest.raises(PeerLost):
            put.result(30)
    go_on.set()
    with pytest.raises(PeerLost, match="closed here"):
        client.wait_acks(cancelled=lambda: False)


def test_close_wakes_who_waits_for_acks(agent: Agent, client: VaultClient) -> None:
    go_on, waiting = agent.stop_answering(), threading.Event()
    client.put_record(0, 1, True, b"x", wait=False)

    def notice_the_wait() -> bool:
        waiting.set()
        return False

    with ThreadPoolExecutor(1) as pool:
        acks = pool.submit(client.wait_acks, notice_the_wait)
        assert waiting.wait(30)
        client.close()
        with pytest.raises(PeerLost, match="closed here"):
            acks.result(30)
    go_on.set()


def put_for_ever(client: VaultClient) -> None:
    while True:
        client.put_record(0, 1, True, b"x")


def test_a_lost_vault_is_noticed(agent: Agent, client: VaultClient) -> None:
    client.put_record(0, 1, True, b"x")
    agent.loop.call_soon_threadsafe(agent.server.close)
    with pytest.raises(PeerLost, match="vault at"):
        put_for_ever(client)
    with pytest.raises(PeerLost):
        VaultClient(agent.server.address, TOKEN)


@pytest.mark.parametrize("place", [HELLO + 3, HELLO + 30])
def test_a_reply_that_was_changed_on_its_way_is_not_taken(
    agent: Agent, place: int, by_thread: bool
) -> None:
    """Its connection ends like that of a vault that is gone: the rank goes on with another one."""
    agent.vault.put_record(0, 1, True, b"x" * 100)
    with Relay(agent.server.address, flip(place)) as relay:
        client = VaultClient(relay.address, TOKEN, by_thread=by_thread)
        with pytest.raises(PeerLost, match="not what the other end has said"):
            client.get_record(0, 1)
        client.close()
    again = VaultClient(agent.server.address, TOKEN)
    assert again.get_record(0, 1) == (1, True, b"x" * 100)
    again.close()


def test_a_record_that_was_changed_on_its_way_is_not_kept(agent: Agent, by_thread: bool) -> None:
    with Relay(agent.server.address, up=flip(HELLO + 60)) as relay:
        client = VaultClient(relay.address, TOKEN, by_thread=by_thread)
        with pytest.raises(PeerLost):
            client.put_record(0, 1, True, b"x" * 100)
        client.close()
    assert agent.vault.records_held() == {}


def test_many_threads_share_a_client(agent: Agent, client: VaultClient) -> None:
    def put(rank: int) -> None:
        for step in range(50):
            client.put_record(rank, step, True, bytes([rank]) * 100, wait=step % 3 == 0)
            assert client.get_record(rank, step) == (step, True, bytes([rank]) * 100)

    threads = [threading.Thread(target=put, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert agent.vault.records_held() == {rank: [48, 49] for rank in range(4)}


def test_a_wrong_token_is_refused(agent: Agent) -> None:
    with pytest.raises(ProtocolError, match="token is not the job's"):
        VaultClient(agent.server.address, b"u" * 16)


def test_an_answer_for_another_service_is_refused(agent: Agent) -> None:
    with pytest.raises(ProtocolError):
        dial(agent.server.address, token=TOKEN, purpose="state")[0].close()


def test_requests_before_the_hello_are_not_answered(agent: Agent) -> None:
    with socket.create_connection(parse_address(agent.server.address)) as link:
        received = link.recv(OPENING_BYTES, socket.MSG_WAITALL)
        opening = End("vault", there(link)).opening(bytes(16))
        link.sendall(opening + bytes(PROOF_BYTES) + frame(b"\x93\x02\x00\x01"))
        while part := link.recv(100):
            received += part
    assert len(received) == OPENING_BYTES + PROOF_BYTES


@pytest.mark.parametrize("data", [b"\xff" * 20, b"\xc1", b"\x94\x04\xa1x\x05"])
@pytest.mark.parametrize("sealed", [True, False])
def test_a_broken_frame_ends_only_its_connection(
    agent: Agent, client: VaultClient, data: bytes, sealed: bool
) -> None:
    link, session = dial(agent.server.address, token=TOKEN, purpose="vault")
    with link:
        link.sendall(session.seal(data) if sealed else frame(data) * 20)
        with contextlib.suppress(ConnectionResetError):
            assert link.recv(1) == b""
    client.put_record(0, 1, True, b"x")
