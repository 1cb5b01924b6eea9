"""What seats leave for each other in the store, to which any stranger on the host can write."""

import threading
import time
from datetime import timedelta

import pytest
from torch.distributed import HashStore, PrefixStore

from trainmover.comm import meeting as meetings
from trainmover.comm.communicator import View
from trainmover.comm.meeting import Meeting
from trainmover.errors import PeerLost, UserError

TOKEN = b"the job's own secret"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> HashStore:
    monkeypatch.setattr(meetings, "_FOREIGN_S", 0.3)
    return HashStore()


def seat(store: HashStore, number: int, epoch: int = 3, token: bytes | None = TOKEN) -> Meeting:
    return Meeting(View(epoch, "g", store, number, 2, timedelta(seconds=20)), token)


def as_stranger(store: HashStore, epoch: int = 3) -> PrefixStore:
    """Who can reach the store can write where the seats meet."""
    return PrefixStore(f"{epoch}/g", store)


def exchanged(first: Meeting, second: Meeting, topic: str = "card") -> list[list[str]]:
    answers: dict[int, list[str]] = {}

    def come() -> None:
        answers[1] = second.exchange(topic, "of 1")

    thread = threading.Thread(target=come)
    thread.start()
    answers[0] = first.exchange(topic, "of 0")
    thread.join()
    return [answers[0], answers[1]]


@pytest.mark.parametrize("token", [TOKEN, None])
def test_seats_read_what_the_others_have_left(store: HashStore, token: bytes | None) -> None:
    found = exchanged(seat(store, 0, token=token), seat(store, 1, token=token))
    assert found == [["of 0", "of 1"]] * 2


@pytest.mark.parametrize("left", ["", "garbage", "f" * 64 + "of 1", "\N{SNOWMAN}" * 100])
def test_what_a_stranger_leaves_first_is_passed_over(store: HashStore, left: str) -> None:
    as_stranger(store).set("card/1", left)
    late = seat(store, 1)
    threading.Timer(0.1, lambda: late.exchange("card", "of 1")).start()
    assert seat(store, 0).exchange("card", "of 0") == ["of 0", "of 1"]


def kept(store: HashStore, number: int, epoch: int = 3, topic: str = "card") -> bytes:
    """What a seat has left, as anybody can read it."""
    seat(store, number, epoch).gather(topic, f"of {number}", [])
    return bytes(as_stranger(store, epoch).get(f"{topic}/{number}"))


def test_what_was_said_elsewhere_is_not_said_here(store: HashStore) -> None:
    for foreign in (kept(store, 1, epoch=2), kept(store, 0), kept(store, 1, topic="list")):
        as_stranger(store).set("card/1", foreign.decode())
        with pytest.raises(PeerLost, match="another process writes"):
            seat(store, 0).exchange("card", "of 0")


def test_an_overwritten_seat_costs_an_epoch_and_no_more(store: HashStore) -> None:
    as_stranger(store).set("card/1", "forged")
    begun = time.monotonic()
    with pytest.raises(PeerLost, match=r"seats \[1\] of group g in epoch 3"):
        seat(store, 0).exchange("card", "of 0")
    assert time.monotonic() - begun < 10
    assert exchanged(seat(store, 0, 4), seat(store, 1, 4)) == [["of 0", "of 1"]] * 2


def test_a_stranger_takes_no_seat(store: HashStore) -> None:
    for number in range(2):
        as_stranger(store).add(f"seat/{number}", 1)
    seat(store, 0).take_seat()
    with pytest.raises(UserError, match="taken before"):
        seat(store, 0).take_seat()
