"""A script that keeps a batch in reserve is told apart from one that needs several for a step."""

import pytest

from trainmover.worker.data.batches import Batches
from trainmover.worker.data.draws import Ahead
from trainmover.worker.data.loops import Loop, Loops


def loops(count: int) -> list[Loop]:
    every, made = Loops(), []
    kept = [Batches(range(3), 1) for _ in range(count)]
    for batches in kept:
        every.begin(batches)
        every.enter(batches)
        made.append(every.fetching)
    return made


def found(fetches: list[str]) -> int | None:
    """For how many steps. fetches: for each step the loops that fetch before it; "A": a finds no
    more."""
    known = dict(zip("ab", loops(2), strict=True))
    ahead = Ahead()
    answers = []
    for names in fetches:
        for name in names:
            if name.isupper():
                ahead.ended(known[name.lower()])
            else:
                ahead.fetched(known[name])
        answers.append(ahead.begin_step())
    assert answers[:-1] == [None] * (len(fetches) - 1)
    return answers[-1]


@pytest.mark.parametrize(
    ("fetches", "steps"),
    [
        (["aa", "a", "a"], 1),
        (["aaa", "aa", "aa"], 1),
        (["aaaa", "a", "a"], 3),
        (["abab", "ab", "ab"], 1),  # side by side
        (["abb", "b", "b"], 1),  # in a loop inside another
        (["aa", "a", "A"], 1),  # in a pass of three batches
        (["aa", "A", "bb"], 1),  # of two
        (["aaa", "A", ""], 2),
    ],
)
def test_a_reserve_is_seen(fetches: list[str], steps: int) -> None:
    assert found(fetches) == steps


@pytest.mark.parametrize(
    "fetches",
    [
        ["a", "a", "a"],
        ["aa", "aa", "aa"],
        ["ab", "ab", "ab"],
        ["ba", "a", "a"],  # a loop inside a loop
        ["ab", "b", "ba"],
        ["a", "", ""],  # several steps with one batch
        ["aa", "a", "aa"],  # batches that are skipped
        ["aA", "bB", "bB"],  # in a pass of one batch: none is left when the next begins
        ["aa", "", "Abb"],  # two steps with two batches
        ["aa", "a", "Abb"],  # two batches for a step, one for the last of a pass
        ["aaaa", "aA", "bbbb"],  # and one for what is left of a pass
        ["aaA", "", ""],  # all batches of a pass, for several steps
    ],
)
def test_other_ways_to_draw_are_none(fetches: list[str]) -> None:
    assert found(fetches) == 0


def test_two_steps_do_not_tell() -> None:
    assert found(["aa", "a"]) is None
