"""Where the seats of a group meet in an epoch, and leave what the others are to read."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from torch.distributed import HashStore

from trainmover.comm.communicator import View
from trainmover.comm.failures import Drained
from trainmover.comm.meet.meeting import Meeting
from trainmover.errors import PeerLost, UserError


@pytest.fixture
def store() -> HashStore:
    return HashStore()


def seat(store: HashStore, number: int, epoch: int = 3, *, timeout_s: float = 20) -> Meeting:
    return Meeting(View(epoch, "g", store, number, 2, timedelta(seconds=timeout_s)))


def together(first: Callable[[], object], second: Callable[[], object]) -> list[object]:
    said: dict[int, object] = {}
    thread = threading.Thread(target=lambda: said.update({1: second()}))
    thread.start()
    said[0] = first()
    thread.join()
    return [said[0], said[1]]


def test_seats_read_what_the_others_have_left(store: HashStore) -> None:
    one, other = seat(store, 0), seat(store, 1)
    met = together(lambda: one.exchange("card", "of 0"), lambda: other.exchange("card", "of 1"))
    assert met == [["of 0", "of 1"]] * 2
    assert (
        together(lambda: one.hear("word", "yes"), lambda: other.hear("word", "no")) == ["yes"] * 2
    )


def test_what_is_left_is_read_in_its_epoch_and_under_its_topic_only(store: HashStore) -> None:
    seat(store, 1, epoch=2).gather("card", "of 1", [])
    seat(store, 1).gather("list", "of 1", [])
    with pytest.raises(PeerLost, match=r"seats \[1\] of group g did not come to epoch 3"):
        seat(store, 0, timeout_s=0.1).exchange("card", "of 0")


def test_a_seat_is_taken_once_in_an_epoch(store: HashStore) -> None:
    seat(store, 0).take_seat()
    seat(store, 1).take_seat()
    seat(store, 0, epoch=4).take_seat()
    with pytest.raises(UserError, match="taken before"):
        seat(store, 0).take_seat()


def test_who_waits_for_a_seat_is_freed_when_the_epoch_is_given_up(store: HashStore) -> None:
    waiting = seat(store, 0)
    threading.Timer(0.1, waiting.give_up).start()
    with pytest.raises(Drained):
        waiting.exchange("card", "of 0")
