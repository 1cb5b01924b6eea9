"""A rank's record comes back as it was, and lies where the keeper says it does."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from vaults import TOKEN, Buddies

from trainmover.errors import PeerLost, ProtocolError
from trainmover.ids import Epoch, Step
from trainmover.listeners.sealed_link import HandedOver
from trainmover.protocol.messages import Row
from trainmover.worker.keep.script_graph import Changed
from trainmover.worker.step.keeper import Keeper, Moment, RankRecord, row_bytes, row_of


def record(step: int) -> RankRecord:
    return RankRecord(
        step=Step(step),
        positions=[
            [0, {"pass": 1, "taken": 4}, b"rng", 6],
            [2, {"pass": 0, "finished": True}, b"", 7],
        ],
        top=Moment(b"rng", {"counter": b"\0"}),
        rows=[row_bytes(Row(step=Step(step - 1), at_us=12, values={"loss": 1 / 3, "zero": -0.0}))],
        objects=[("train.py line 7", b"\x80pickled")],
        given_up=2,
        graph=Changed(7, b"changes"),
        uncarried="`code` was compiled from a text",
    )


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    keeper = Keeper(TOKEN, 5)
    yield keeper
    keeper.close()


def test_a_record_comes_back_equal() -> None:
    taken = record(8)
    back = RankRecord.from_bytes(taken.to_bytes())
    assert back == taken
    assert repr(row_of(back.rows[0]).values) == "{'loss': 0.3333333333333333, 'zero': -0.0}"
    assert back.to_bytes() == taken.to_bytes()


@pytest.mark.parametrize("damage", [slice(0, -1), slice(1, None), slice(0, 0)])
def test_a_damaged_record_is_a_protocol_error(damage: slice) -> None:
    with pytest.raises(ProtocolError):
        RankRecord.from_bytes(record(8).to_bytes()[damage])


def test_what_is_safe_lies_in_the_buddys_vault(buddies: Buddies, keeper: Keeper) -> None:
    vault, server = buddies.make()
    assert keeper.follow(server.address, None)
    keeper.put(record(8))
    keeper.put(record(9))
    assert keeper.safe(cancelled=lambda: False)
    assert vault.records_held() == {5: [8, 9]}
    held = vault.get_record(5, 8)
    assert held is not None
    assert RankRecord.from_bytes(held.data) == record(8)


def test_a_new_buddy_has_the_newest_record_at_once(buddies: Buddies, keeper: Keeper) -> None:
    (_, first), (vault, second) = buddies.make(), buddies.make()
    keeper.follow(first.address, None)
    assert keeper.follow(second.address, record(8))
    assert vault.records_held() == {5: [8]}
    assert not keeper.follow(second.address, record(9))
    assert keeper.safe(cancelled=lambda: False)
    assert vault.records_held() == {5: [8, 9]}


def test_a_record_that_came_too_late_for_its_epoch_is_put_again_in_the_next(
    buddies: Buddies, keeper: Keeper
) -> None:
    vault, server = buddies.make()
    keeper.epoch = Epoch(1)
    keeper.follow(server.address, None)
    vault.fence(2)
    keeper.put(record(8))
    asked = iter([False, False, True])
    assert not keeper.safe(cancelled=lambda: next(asked, True))
    keeper.epoch = Epoch(2)
    assert not keeper.follow(server.address, record(8))
    assert keeper.safe(cancelled=lambda: False)
    assert vault.records_held() == {5: [8]}


def test_large_things_are_kept_by_name(buddies: Buddies, keeper: Keeper) -> None:
    vault, server = buddies.make()
    keeper.follow(server.address, None)
    keeper.put_blob("record/5", b"x" * 100_000)
    assert vault.get_blob("record/5") == b"x" * 100_000


def test_without_a_buddy_nothing_is_kept(keeper: Keeper) -> None:
    with pytest.raises(PeerLost, match="no buddy"):
        keeper.put(record(8))
    with pytest.raises(PeerLost):
        keeper.safe(cancelled=lambda: False)
    keeper.close()


def test_a_closed_keeper_connects_anew_to_the_same_buddy(buddies: Buddies, keeper: Keeper) -> None:
    vault, server = buddies.make()
    keeper.follow(server.address, None)
    keeper.close()
    assert keeper.follow(server.address, record(8))
    assert vault.records_held() == {5: [8]}


def put_for_ever(keeper: Keeper) -> None:
    while True:
        keeper.put(record(8))
        keeper.safe(cancelled=lambda: False)


def test_a_buddy_that_is_gone_is_told(buddies: Buddies, keeper: Keeper) -> None:
    (_, gone), (vault, server) = buddies.make(), buddies.make()
    keeper.follow(gone.address, None)
    buddies.loop.call_soon_threadsafe(gone.close)
    with pytest.raises(PeerLost):
        put_for_ever(keeper)
    assert keeper.follow(server.address, record(8))
    assert vault.records_held() == {5: [8]}


def test_waiting_can_be_cancelled(buddies: Buddies, keeper: Keeper) -> None:
    _, server = buddies.make()
    keeper.follow(server.address, None)
    go_on, held = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go_on.wait(30)

    buddies.loop.call_soon_threadsafe(hold)
    assert held.wait(30)
    keeper.put(record(8))
    assert keeper.safe(cancelled=lambda: True) is False
    go_on.set()
    assert keeper.safe(cancelled=lambda: False)


def test_a_connection_that_broke_is_made_anew(keeper: Keeper, buddies: Buddies) -> None:
    """The buddy may live and stay the buddy: only the link to it was cut."""
    vault, server = buddies.make()
    keeper.follow(server.address, record(8))
    assert keeper._client is not None
    link = keeper._client._link
    assert isinstance(link, HandedOver)
    link._socket.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(PeerLost):  # What it hands over is sent by a thread, a little later.
        keeper.put(record(9))
    with pytest.raises(PeerLost):
        keeper.safe(cancelled=lambda: False)
    assert keeper.follow(server.address, record(9))
    assert vault.records_held() == {5: [8, 9]}
    assert not keeper.follow(server.address, record(9))
