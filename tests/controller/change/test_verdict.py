"""Commit forward or abort, from where the survivors stood; lost is rank 9 unless said otherwise."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmover.controller.change.verdict import Impossible, judge
from trainmover.protocol.messages import Position

Place = tuple[int, int]  # committed, gate


def verdict(
    *places: Place, held: Iterable[int] = (7, 8, 9), floor: int = 0, lost: Iterable[int] = (9,)
) -> int | Impossible:
    positions = {
        rank: Position(rank=rank, epoch=2, committed=committed, gate=gate)
        for rank, (committed, gate) in enumerate(places)
    }
    return judge(positions, lost, {9: set(held)}, floor)


PAST, INSIDE, COMPUTING = (8, 0), (7, 8), (7, 0)


@pytest.mark.parametrize(
    ("places", "committed"),
    [
        ([PAST, PAST], 8),
        ([PAST, INSIDE], 8),
        ([INSIDE, PAST, INSIDE], 8),
        ([INSIDE, INSIDE], 8),
        ([INSIDE, COMPUTING], 7),
        ([COMPUTING, COMPUTING], 7),
        ([INSIDE], 8),
        ([COMPUTING], 7),
    ],
)
def test_the_table(places: list[Place], committed: int) -> None:
    assert verdict(*places) == committed


def test_all_in_the_gate_commit_only_if_the_lost_rank_can_go_on_after_it() -> None:
    assert verdict(INSIDE, INSIDE, held=[8]) == 7
    assert verdict(INSIDE, INSIDE, held=[8, 9]) == 8
    assert verdict(INSIDE, INSIDE, held=[9]) == 8


def test_all_in_the_gate_without_any_record_is_impossible() -> None:
    found = verdict(INSIDE, INSIDE, held=[])
    assert found == Impossible("the record of rank 9 for step 8 is on no machine that lives")


@pytest.mark.parametrize("places", [[PAST, INSIDE], [PAST, PAST]])
def test_past_the_gate_without_the_record_after_it_is_impossible(places: list[Place]) -> None:
    assert isinstance(verdict(*places, held=[7, 8]), Impossible)


def test_computing_needs_the_record_of_the_step_itself() -> None:
    assert verdict(COMPUTING, held=[8]) == 7
    assert isinstance(verdict(COMPUTING, held=[9]), Impossible)


def test_every_lost_rank_needs_its_record() -> None:
    found = verdict(COMPUTING, lost=(9, 5))
    assert isinstance(found, Impossible)
    assert "rank 5" in found.why


def test_a_broken_link_needs_no_records() -> None:
    assert verdict(INSIDE, INSIDE, lost=(), held=()) == 8
    assert verdict(INSIDE, COMPUTING, lost=(), held=()) == 7


def test_an_earlier_verdict_is_never_undone() -> None:
    assert verdict(INSIDE, INSIDE, floor=8) == 8
    assert verdict(INSIDE, PAST, floor=8) == 8


def test_a_rank_behind_an_earlier_verdict_is_impossible() -> None:
    found = verdict(INSIDE, COMPUTING, floor=8)
    assert found == Impossible("rank 1 is not at step 8 like the others")


def test_a_rank_that_computes_while_another_is_past_is_impossible() -> None:
    assert isinstance(verdict(PAST, COMPUTING), Impossible)
    assert isinstance(verdict(PAST, (6, 7)), Impossible)


def test_nobody_left_resumes_at_the_floor() -> None:
    assert verdict(floor=8, held=[9, 10]) == 8
    assert isinstance(verdict(floor=8, held=[8]), Impossible)


@given(
    st.lists(st.sampled_from([PAST, INSIDE, COMPUTING]), min_size=1, max_size=5),
    st.sets(st.sampled_from([7, 8, 9])),
)
def test_whatever_is_decided_every_rank_can_follow(places: list[Place], held: set[int]) -> None:
    found = verdict(*places, held=held)
    if isinstance(found, Impossible):
        return
    assert found + 1 in held
    assert all(found in (committed, gate) for committed, gate in places)
    assert found >= max(committed for committed, _ in places)
