"""What a training loop iterates over, and whose place nobody can tell, is named."""

import csv
from typing import Any

import pytest

from trainmover.loops.iterators import Enumerate, Zip
from trainmover.worker.auto.loop import Turns, without_place


def plain() -> Any:
    yield 1


IN_C = csv.reader(["a,b"])


@pytest.mark.parametrize("iterator", [None, iter([1]), plain(), Enumerate([1]), Zip([1], "ab")])
def test_places_that_can_be_told(iterator: Any) -> None:
    assert without_place(iterator) == ""


@pytest.mark.parametrize("iterator", [IN_C, Enumerate(IN_C), Zip([1], Enumerate(IN_C))])
def test_places_that_cannot(iterator: Any) -> None:
    assert "reader is in its training loop" in without_place(iterator)


def test_turns_have_a_number_as_their_place() -> None:
    turns = Turns()
    assert [next(turns), next(turns)] == [1, 2]
    other = Turns()
    other.resume(turns.position())
    assert next(other) == 3
