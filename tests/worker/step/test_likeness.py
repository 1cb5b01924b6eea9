"""Ranks that were alike see at a gate that they are so no more; who does not know says nothing."""

import pytest

from trainmover.worker.step.likeness import Likeness


def rank(sample: int, *, known: bool = True) -> Likeness:
    made = Likeness()
    made.known, made.sample = known, sample
    return made


def at_gate(*ranks: Likeness) -> list[bool]:
    """What each has found there: the largest of all ranks' numbers is taken."""
    most, minus_least = map(max, zip(*(one.asks() for one in ranks), strict=True))
    for one in ranks:
        one.hears(most, minus_least)
    return [one.parted for one in ranks]


@pytest.mark.parametrize("sample", [0, 1, 2**63 - 1])
def test_equal_samples_tell_nothing(sample: int) -> None:
    assert at_gate(rank(sample), rank(sample), rank(sample)) == [False] * 3


def test_one_that_differs_is_seen_by_all() -> None:
    assert at_gate(rank(7), rank(7), rank(8)) == [True] * 3


def test_who_does_not_know_is_not_asked() -> None:
    assert at_gate(rank(7), rank(9, known=False), rank(7)) == [False] * 3
    assert at_gate(rank(7, known=False), rank(9, known=False)) == [False] * 2


def test_only_what_was_alike_can_part() -> None:
    first = Likeness()
    assert not first.round_shows(alike=False), "ranks hold shards"
    assert not first.round_shows(alike=True)
    assert first.round_shows(alike=False)
    assert not first.round_shows(alike=False), "it is known"


def test_gradients_that_made_no_difference_count_no_more() -> None:
    one, other = rank(7), rank(8)
    assert at_gate(one, other) == [True, True]
    assert not one.round_shows(alike=True)
    assert (one.known, one.vain, one.parted) == (True, True, False)


def test_who_joins_is_as_the_others_are() -> None:
    joiner = Likeness()
    joiner.begin_epoch(known=True, vain=True)
    assert (joiner.known, joiner.vain, joiner.parted) == (True, True, False)
