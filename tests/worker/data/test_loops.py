"""Where a script stands in its data: which loops it is in, and from where each can be resumed."""

from collections.abc import Sequence

import pytest

from trainmover.errors import StateMismatch
from trainmover.ids import Step
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.loops import Loops

AT = [12, 40]


def loop(loops: Loops, length: int = 3, over: Batches | None = None) -> Batches:
    """over: the loader of that loop"""
    batches = Batches(range(length) if over is None else over.over, 1)
    loops.begin(batches)
    return batches


def fetch(loops: Loops, batches: Batches, calls: int = 0) -> int:
    loops.enter(batches)
    taken: int = loops.take(batches, b"rng", Step(calls), AT)
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
    around, innermost = loops.positions(Step(6), [8])
    assert (around[0], around[1]["taken"], *around[2:]) == (0, 0, b"rng", 4, [], AT)
    assert (innermost[0], innermost[1]["taken"], *innermost[2:]) == (0, 1, b"", 6, [], [8])


def zipped(loops: Loops, steps: int) -> tuple[Batches, Batches]:
    pair = loop(loops, 9), loop(loops, 9)
    for _ in range(steps):
        for batches in pair:
            fetch(loops, batches)
    return pair


def test_loops_drawn_from_side_by_side_stay_in_force_and_have_a_place_each() -> None:
    loops = Loops()
    first, _second = zipped(loops, steps=3)
    loops.enter(first)
    (main,), (other,) = loops.positions(Step(3), [8]), loops.beside()
    assert (loops.ordinals, loops.member) == ([1], [0])
    assert (main[0], main[1]["taken"]) == (1, 3)
    assert (other[0], other[1]["taken"]) == ([0], 3)


def test_a_place_beside_is_resumed_with_the_main_one() -> None:
    loops, other = Loops(), Loops()
    first, second = zipped(loops, steps=5)
    again = zipped(other, steps=3)
    loops.enter(first)
    other.enter(again[0])
    place = loops.positions(Step(5), [8])[-1]
    other.resume(place[1], loops.beside(), place[4])
    assert [one.batches_taken for one in again] == [5, 5]
    assert [fetch(other, one) for one in again] == [next(first), next(second)]


def test_a_loop_beside_is_nobodys_surroundings() -> None:
    loops = Loops()
    beside = loop(loops, 20)
    for data_pass in range(3):
        inner = loop(loops)
        for _ in range(3):
            fetch(loops, inner)
            fetch(loops, beside)
        with pytest.raises(StopIteration):
            fetch(loops, inner)
        assert loops.ordinals == [1 + data_pass]


def test_an_iterator_made_inside_a_loop_may_outlive_the_body() -> None:
    loops = Loops()
    outer = loop(loops, 9)
    fetch(loops, outer)
    lasting = loop(loops, 9)
    for _ in range(4):
        fetch(loops, lasting)
        fetch(loops, outer)
    fetch(loops, lasting)
    assert [place[0] for place in loops.beside()] == [[0]]


def test_loops_that_were_made_ahead_do_not_lie_inside_each_other() -> None:
    loops = Loops()
    train, check = loop(loops), loop(loops)
    for _ in range(3):
        fetch(loops, check)
    with pytest.raises(StopIteration):
        fetch(loops, check)
    fetch(loops, train)
    assert (loops.ordinals, loops.beside()) == ([0], [])


def test_a_loop_beside_that_was_never_begun_is_missed() -> None:
    loops = Loops()
    one = loop(loops)
    fetch(loops, one)
    with pytest.raises(StateMismatch, match="has not begun a loop"):
        loops.resume(loops.positions(Step(0), [8])[0][1], [[[7], {}]], [])


def test_a_loop_that_is_begun_anew_beside_another_is_the_same_loop() -> None:
    loops = Loops()
    short, long = loop(loops, 2), loop(loops, 9)
    for batches in (short, long, short, long):
        fetch(loops, batches)
    with pytest.raises(StopIteration):
        fetch(loops, short)
    anew = loop(loops, over=short)
    for batches in (anew, long):
        fetch(loops, batches)
    assert [path for path, _ in loops.beside()] == [[0]]
    assert loops.begun == 2

    other = Loops()
    mine, second = loop(other, 2), loop(other, 9)
    for batches in (mine, second):
        fetch(other, batches)
    other.resume(loops.positions(Step(5), [8])[0][1], loops.beside(), [])
    assert fetch(other, mine) == 1
    assert other.draw(mine, 1).data_pass == 1


def test_loops_that_generators_begin_anew_are_the_same_loops() -> None:
    """`while True: yield from job.batches(loader)`: nobody holds the one before as the next begins,
    and the second generator's first loop began where the first one's had fetched."""
    loops = Loops()
    loaders = [range(3), range(2)]
    drawn: dict[int, Batches] = {}
    for _ in range(7):
        for which, loader in enumerate(loaders):
            try:
                fetch(loops, drawn[which])
            except (KeyError, StopIteration):
                drawn.pop(which, None)
                drawn[which] = Batches(loader, 1)
                loops.begin(drawn[which])
                fetch(loops, drawn[which])
    assert loops.begun == 2
    assert [loops.positions(Step(7), [8])[0][0], loops.beside()[0][0]] == [0, [0]]
    assert [loops.draw(one, 0).data_pass for one in [drawn[1]]] == [3]


def test_a_loop_over_the_same_loader_is_another_where_none_is_drawn_from_beside() -> None:
    loops = Loops()
    one = None
    for turn in range(2):
        one = loop(loops, 1, over=one)
        fetch(loops, one)
        with pytest.raises(StopIteration):
            fetch(loops, one)
        assert loops.begun == turn + 1


@pytest.mark.parametrize(
    ("loader", "passes", "known"),
    [(range(90), 1, 90), (range(90), 3, 270), ([0] * 90, 3, 270), ([0] * 90, 1, 0), ([0], None, 0)],
)
def test_how_many_steps_are_to_come_is_known_where_the_script_says_it(
    loader: Sequence[int], passes: int | None, known: int
) -> None:
    """One pass over data may be followed by another."""
    loops = Loops()
    assert loops.length(0) == 0
    batches = Batches(loader, passes)
    loops.begin(batches)
    for step in range(min(3, len(loader))):
        fetch(loops, batches, step)
    assert loops.length(3) == known


def test_several_batches_a_step_and_loops_in_loops_are_counted() -> None:
    loops = Loops()
    outer = loop(loops, length=4)
    fetch(loops, outer)
    inner = loop(loops, length=30)
    for batch in range(6):
        fetch(loops, inner, batch // 2)
    assert loops.length(3) == 4 * 30 // 2
