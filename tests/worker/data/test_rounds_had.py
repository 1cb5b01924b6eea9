"""How many rounds loops had, for who comes by them."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainmover.ids import Rank, Step
from trainmover.worker.data import rounds
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.loops import Loops
from trainmover.worker.data.rounds import KEPT, UNKNOWN, Rounds
from trainmover.worker.join.way.way import Way
from trainmover.worker.step.keeper import Moment, RankRecord


def begun(*had: int) -> Rounds:
    known = Rounds()
    for count in had:
        ordinal = known.begin()
        for _ in range(count):
            known.had_one(ordinal)
    return known


def test_of_the_newest_loops_it_is_known_how_many_they_had() -> None:
    known = begun(*range(KEPT + 4))
    last = KEPT + 3
    before = known.before(last)
    assert before == list(range(4, last))
    assert [rounds.of(ordinal, before, last) for ordinal in (3, 4, last)] == [UNKNOWN, 4, UNKNOWN]
    assert known.before(last - 2) == list(range(4, last - 2))
    known.had_one(0)  # So long ago that nobody asks.
    assert known.before(last) == before


def test_who_resumes_goes_on_counting_as_the_rank_did() -> None:
    known = begun(0, 0, 0, 2)
    known.resume(2, [8, 3], had=5)
    known.had_one(2)
    assert known.before(3) == [8, 3, 6]
    assert known.before(4) == [8, 3, 6, 2]


def drawn(loops: Loops, loader: Any, count: int) -> Batches:
    batches = Batches(loader, None)
    loops.begin(batches)
    for _ in range(count):
        loops.enter(batches)
        loops.take(batches, b"", Step(0), [])
    return batches


def left(loops: Loops, count: int) -> None:
    """By break, after so many rounds."""
    drawn(loops, range(9), count)


def test_a_fetch_around_begins_to_count_anew() -> None:
    loops = Loops()
    outer = drawn(loops, range(9), 1)
    left(loops, 4)
    left(loops, 2)
    inner = drawn(loops, range(9), 1)
    assert [place[4] for place in loops.positions(Step(0), [])] == [[], [4, 2]]
    loops.enter(outer)
    loops.take(outer, b"", Step(0), [])
    left(loops, 3)
    again = drawn(loops, range(9), 0)
    assert [place[4] for place in loops.positions(Step(0), [])] == [[], [3]]
    assert (inner.drawn, again.drawn) == (1, 0)


def way(*positions: list[Any]) -> Way:
    places = [[ordinal, {}, b"", 0, before, []] for ordinal, before in positions]
    return Way(Rank(1), RankRecord(Step(6), places, Moment(b"", {})))


def test_a_loop_that_is_passed_by_has_as_many_as_the_rank_had() -> None:
    path = way([2, [7, 0]], [1, [4]])
    assert [path.rounds_of([0], 3, 9), path.rounds_of([1], 0, 9)] == [7, 0]
    path.reached = 1
    assert path.rounds_of([2, 0], 0, 9) == 4


@pytest.mark.parametrize(("here", "whole", "many"), [(0, 9, 9), (0, None, 1), (3, 9, 3)])
def test_of_one_that_nobody_knows_of_it_is_all_or_no_more_than_it_had(
    here: int, whole: int | None, many: int
) -> None:
    path = way([2, []], [1, [4]])
    assert path.rounds_of([0], here, whole) == many  # Long ago.
    assert path.rounds_of([1, 0], here, whole) == many  # In a round that the rank has left.


def test_a_stand_in_draws_nothing_but_the_first_time() -> None:
    data = TensorDataset(torch.arange(12.0))
    batches = Batches(DataLoader(data, 4, shuffle=True, num_workers=2), 2)
    before = torch.get_rng_state()
    first, second = batches.stand_in(), batches.stand_in()
    assert first is second
    assert first[0].shape == (4,)
    assert torch.equal(torch.get_rng_state(), before)
    assert (batches.drawn, batches.rounds, batches.batches_taken) == (2, 6, 0)


def test_of_a_sequence_it_is_the_very_item() -> None:
    batches = Batches(range(3), 2)
    assert [batches.stand_in() for _ in range(4)] == [0, 1, 2, 0]
    with pytest.raises(StopIteration):
        Batches([], 1).stand_in()
    assert Batches(range(3), None).rounds is None
