"""Where a script stands in its data: which loops it is in, and from where each can be resumed."""

import pytest

from trainmover.ids import Step
from trainmover.worker.batches import Batches
from trainmover.worker.loops import Loops


def loop(loops: Loops, length: int = 3) -> Batches:
    batches = Batches(range(length), 1)
    loops.begin(batches)
    return batches


def fetch(loops: Loops, batches: Batches, calls: int = 0) -> int:
    loops.enter(batches)
    taken: int = loops.take(batches, batches.position(), b"rng", Step(calls))
    return taken


def test_a_loop_inside_another_counts_from_the_last_fetch_around_it() -> None:
    loops = Loops()
    outer = loop(loops)
    for _ in range(2):
        fetch(loops, outer)
        for ordinal in range(2):
            inner = loop(loops, length=0)
            assert loops.ordinals == [0, ordinal]
            with pytest.raises(StopIteration):
                fetch(loops, inner)


def test_a_loop_left_by_break_is_dropped_when_the_next_begins() -> None:
    loops = Loops()
    left = loop(loops)
    fetch(loops, left)
    del left
    behind = loop(loops)
    assert loops.ordinals == [1]
    fetch(loops, behind)


def test_a_fetch_ends_the_loops_inside() -> None:
    loops = Loops()
    outer = loop(loops)
    fetch(loops, outer)
    inner = loop(loops)
    fetch(loops, inner)
    fetch(loops, outer)
    assert loops.ordinals == [0]


def test_positions_are_before_the_last_fetch_of_each_and_before_the_next_of_the_innermost() -> None:
    loops = Loops()
    outer = loop(loops)
    fetch(loops, outer, calls=4)
    inner = loop(loops)
    fetch(loops, inner, calls=5)
    around, innermost = loops.positions(Step(6))
    assert (around[0], around[1]["taken"], *around[2:]) == (0, 0, b"rng", 4)
    assert (innermost[0], innermost[1]["taken"], *innermost[2:]) == (0, 1, b"", 6)
