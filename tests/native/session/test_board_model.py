"""The board's protocol, searched through; and that the search finds planted faults."""

import pytest
from board_model import FAULTS, LONGER, RESULT, STORIES, Wrong, outcome, search

PLANTED = [fault for fault in FAULTS if fault]


@pytest.mark.parametrize("name", STORIES)
def test_nothing_wrong_is_ever_taken_and_nobody_waits_for_ever(name: str) -> None:
    states = search(STORIES[name](""))
    assert f"{name}: {states} states" in RESULT.read_text()


@pytest.mark.turns(4)
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str) -> None:
    found = outcome(fault, STORIES)
    assert "WRONG" in found
    assert found in RESULT.read_text()


def test_the_way_to_what_is_wrong_is_told() -> None:
    with pytest.raises(Wrong, match="0 writes its post"):
        search(STORIES["calm, 2 seats, 2 x 3 beats"]("posted first"))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LONGER)
def test_longer_stories(name: str) -> None:
    assert search(LONGER[name]("")) > 0
