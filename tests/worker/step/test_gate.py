"""What ranks agree on before the first step of an epoch."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from trainmover.errors import StateMismatch
from trainmover.ids import Epoch
from trainmover.worker.step.gate import Gate
from trainmover.worker.step.likeness import Likeness


class Meeting:
    """Of a rank with one other, which asks the same, but has given up so many calls."""

    def __init__(self, given_up: int) -> None:
        self._given_up = given_up

    def largest(self, numbers: Sequence[int]) -> list[int]:
        *same, most, minus_least = map(int, numbers)
        return [*same, max(most, self._given_up), max(minus_least, -self._given_up)]


def gate(given_up: int, others: int) -> Gate:
    one: Any = Gate.__new__(Gate)
    one._standing, one._group = SimpleNamespace(epoch=Epoch(3)), Meeting(others)
    one.likeness, one.early = Likeness(), False
    one.given_up, one._mode_of = given_up, Epoch(2)
    made: Gate = one
    return made


def test_ranks_that_have_given_up_as_many_calls_go_on() -> None:
    for count in (0, 3):
        ranks = gate(count, count)
        assert ranks.settles_mode(updates=True)
        assert ranks.mode_is_known


@pytest.mark.parametrize(("mine", "theirs"), [(0, 1), (1, 0), (2, 3)])
def test_where_some_have_left_a_step_that_others_are_still_to_make_all_end(
    mine: int, theirs: int
) -> None:
    """Else what one sums for its batch would meet what others sum for the next."""
    with pytest.raises(StateMismatch, match="some of them have left that step"):
        gate(mine, theirs).settles_mode(updates=True)
