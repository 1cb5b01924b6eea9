"""Who may talk over NCCL, from what each seat says of itself."""

import pytest

from trainmover.comm.nccl.seats import Card, check_cards, in_words
from trainmover.errors import PeerLost

ONE = Card(22809, "GPU-1", "")


def test_a_card_is_read_as_it_was_written() -> None:
    card = Card(22809, "GPU 5|odd", "a host|with bars")
    assert Card.read(ONE.text()) == ONE
    assert Card.read(card.text()).version == 22809


@pytest.mark.parametrize("said", ["", "|", "2.28|GPU|", "x" * 1000, "-1|GPU|"])
def test_what_is_no_card_is_refused(said: str) -> None:
    with pytest.raises(PeerLost, match="damaged"):
        Card.read(said)


def test_seats_with_devices_of_their_own_may_talk() -> None:
    check_cards("world", [ONE, Card(22809, "GPU-2", ""), Card(22809, "GPU-1", "another host")])


def test_more_ranks_than_devices_are_named_with_what_to_do() -> None:
    with pytest.raises(PeerLost, match=r"seats 0 and 2 have the same device \(GPU-1\).*--nproc"):
        check_cards("world", [ONE, Card(22809, "GPU-2", ""), ONE])


def test_another_library_is_named() -> None:
    with pytest.raises(PeerLost, match=r"seat 1 has libnccl 2\.27\.3, seat 0 has 2\.28\.9"):
        check_cards("world", [ONE, Card(22703, "GPU-2", "")])


def test_versions_in_words() -> None:
    assert [in_words(21803), in_words(22809)] == ["2.18.3", "2.28.9"]
