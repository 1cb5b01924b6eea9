"""Which snapshots of its rank a process takes, keeps, gives away and drops."""

from typing import NamedTuple

import pytest

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Snapped
from trainmover.rank.cuts import BUSY, VOID, WANTED, Cuts, Put

RANK, OTHER = Rank(2), Rank(3)


class Snapshot(NamedTuple):
    rank: int
    step: int


def took(cuts: Cuts[Snapshot], step: int, rank: Rank = RANK, vault: str = "v") -> Put[Snapshot]:
    return cuts.took(Snapshot(rank, step), epoch=Epoch(1), vault=vault, cost_us=7, step_us=9)


def flags(cuts: Cuts[Snapshot], first: int, last: int) -> list[int]:
    return [cuts.flag(RANK, Step(step)) for step in range(first, last + 1)]


def steps(dropped: list[Snapshot]) -> list[int]:
    return [one.step for one in dropped]


def test_where_none_is_wanted_none_is_due() -> None:
    assert flags(Cuts(), 1, 9) == [0] * 9


def test_one_is_due_so_many_steps_after_the_last_of_this_rank() -> None:
    cuts = Cuts[Snapshot]()
    cuts.keep(3, now=False)
    assert cuts.flag(RANK, Step(50)) == WANTED, "who holds none wants one"
    took(cuts, 50)
    assert flags(cuts, 51, 59) == [BUSY] * 9
    cuts.completed(Step(50))
    assert flags(cuts, 51, 54) == [0, 0, WANTED, WANTED]
    assert cuts.flag(OTHER, Step(51)) == WANTED, "what it holds is of another rank"


def test_who_has_not_heard_that_they_are_wanted_holds_two_at_most_too() -> None:
    """Its flag goes up all the same, or others would take one after the other."""
    cuts = Cuts[Snapshot]()
    took(cuts, 4)
    assert flags(cuts, 5, 9) == [BUSY] * 5
    cuts.completed(Step(4))
    assert flags(cuts, 10, 12) == [0] * 3


def test_one_that_is_asked_for_is_taken_once() -> None:
    cuts = Cuts[Snapshot]()
    cuts.keep(0, now=True)
    cuts.keep(0, now=False)
    assert cuts.flag(RANK, Step(3)) == WANTED
    took(cuts, 3)
    cuts.completed(Step(3))
    assert cuts.flag(RANK, Step(4)) == 0


def test_a_checkpoint_is_due_at_each_multiple_or_as_soon_as_it_can() -> None:
    cuts = Cuts[Snapshot](checkpoint_every=10)
    assert flags(cuts, 8, 11) == [0, 0, WANTED, WANTED]
    assert took(cuts, 11).vault == "", "taken for checkpoints alone it goes to no vault"
    assert cuts.flag(RANK, Step(20)) == BUSY
    cuts.completed(Step(11))
    assert flags(cuts, 19, 21) == [0, WANTED, WANTED]


def test_who_begins_behind_a_multiple_waits_for_the_next() -> None:
    assert flags(Cuts(checkpoint_every=10), 14, 20) == [0] * 6 + [WANTED]


@pytest.mark.parametrize("own", [False, True])
def test_what_is_in_no_other_memory_goes_to_a_vault(own: bool) -> None:
    cuts = Cuts[Snapshot](checkpoint_every=10)
    if own:
        cuts.keep_own()
    assert took(cuts, 10).vault == ("v" if own else "")
    assert cuts.first_of_own() is own
    assert not cuts.first_of_own(), "once"


def test_two_are_held_at_most() -> None:
    cuts = Cuts[Snapshot]()
    cuts.keep(1, now=False)
    took(cuts, 5)
    assert steps(cuts.completed(Step(5))) == []
    put = took(cuts, 6)
    assert cuts.has(put.snapshot)
    assert steps(cuts.completed(Step(6))) == [5]
    assert cuts.of(RANK, Step(5)) is None
    assert cuts.of(OTHER, Step(6)) is None
    assert cuts.of(RANK, Step(6)) == put.snapshot


def test_the_only_one_is_given_although_no_vault_gets_any_more() -> None:
    cuts = Cuts[Snapshot](checkpoint_every=20)
    put = took(cuts, 5)
    cuts.completed(Step(5))
    assert cuts.follow(RANK, "m4", Epoch(2)) is None, "they are for checkpoints alone"
    given = cuts.give(RANK, Step(5), "m4", Epoch(2))
    assert given == Put(put.snapshot, Epoch(2), "m4", 0, 0), "no step has waited for it"
    missing = cuts.give(OTHER, Step(5), "m4", Epoch(2))
    assert isinstance(missing, Snapped)
    assert (missing.step, missing.refused) == (5, "its process does not have it")


def test_what_is_undone_goes_and_what_all_go_back_to_stays() -> None:
    cuts = Cuts[Snapshot]()
    took(cuts, 5)
    cuts.completed(Step(5))
    took(cuts, 8)
    assert steps(cuts.back_to(Step(5))) == [8]
    assert cuts.of(RANK, Step(5)) is not None


def test_a_new_buddy_gets_it_and_no_step_waits() -> None:
    cuts = Cuts[Snapshot]()
    put = took(cuts, 5)
    cuts.completed(Step(5))
    assert cuts.follow(RANK, "m4", Epoch(2)) == Put(put.snapshot, Epoch(2), "m4", 0, 0)


def test_a_job_that_starts_anew_has_none_not_even_of_its_first_step() -> None:
    cuts = Cuts[Snapshot]()
    took(cuts, 1)
    assert steps(cuts.clear()) == [1]


def test_what_is_not_complete_when_members_change_goes() -> None:
    cuts = Cuts[Snapshot]()
    took(cuts, 5)
    cuts.completed(Step(5))
    put = took(cuts, 8)
    assert steps(cuts.changed(4)) == [8]
    assert not cuts.has(put.snapshot)
    assert cuts.of(RANK, Step(5)) is not None
    assert cuts.every == 4


def test_of_steps_that_are_undone_nothing_stays() -> None:
    cuts = Cuts[Snapshot]()
    took(cuts, 5)
    cuts.completed(Step(5))
    took(cuts, 8)
    cuts.completed(Step(7))
    cuts.completed(Step(8))
    assert steps(cuts.back_to(Step(6))) == [8]
    took(cuts, 7)
    cuts.keep(1, now=False)
    assert cuts.flag(RANK, Step(8)) == BUSY, "that one is on its way again"
    assert steps(cuts.clear()) == [7]


def test_a_vault_that_has_it_is_told_of_and_then_a_second_one_gets_it() -> None:
    cuts = Cuts[Snapshot]()
    cuts.further = "w"
    put = took(cuts, 5)
    fact, more = cuts.given(put, "", 64)
    assert fact is not None
    assert more is not None
    assert (fact.vault, fact.further, fact.refused, fact.bytes) == ("v", "", "", 64)
    assert (fact.rank, fact.step, fact.cost_us, fact.step_us) == (RANK, 5, 7, 9)
    again, last = cuts.given(more, "", 64)
    assert again is not None
    assert (again.vault, again.further, last) == ("v", "w", None)


def test_one_copy_is_not_given_to_its_own_vault_as_a_second() -> None:
    """It was on its way to the buddy of before, which is to keep second copies now."""
    cuts = Cuts[Snapshot]()
    put = took(cuts, 5)
    cuts.completed(Step(5))
    assert cuts.follow(RANK, "w", Epoch(2), "v") is not None
    assert cuts.given(put, "", 64)[1] is None


def test_a_vault_without_room_is_told_of_unless_it_is_the_second() -> None:
    cuts = Cuts[Snapshot]()
    cuts.further = "w"
    put = took(cuts, 5)
    fact, more = cuts.given(put, "no room", 64)
    assert fact is not None
    assert (fact.refused, more) == ("no room", None)
    _, more = cuts.given(put, "", 64)
    assert more is not None
    assert cuts.given(more, "no room", 64) == (None, None)


def test_a_new_buddy_gets_what_is_complete_unless_it_has_it() -> None:
    cuts = Cuts[Snapshot]()
    assert cuts.follow(RANK, "v", Epoch(1)) is None
    put = took(cuts, 5)
    cuts.given(put, "", 64)
    assert cuts.follow(RANK, "w", Epoch(2)) is None, "it is not complete yet"
    cuts.completed(Step(5))
    assert cuts.follow(RANK, "v", Epoch(2)) is None
    given = cuts.follow(RANK, "w", Epoch(2))
    assert given is not None
    assert (given.snapshot, given.vault, given.epoch) == (put.snapshot, "w", 2)
    fact = given.said(64)
    assert (fact.cost_us, fact.step_us) == (0, 0), "no step has waited for that"
    assert cuts.follow(RANK, "v", Epoch(2), "w") is not None, "there is to be one more copy"


def test_a_vault_that_had_it_before_all_went_back_gets_the_new_one() -> None:
    cuts: Cuts[Snapshot] = Cuts()
    cuts.given(took(cuts, 5, vault="v1"), "", 1)
    cuts.completed(Step(5))
    cuts.back_to(Step(3))
    cuts.given(took(cuts, 5, vault="v2"), "it is full", 1)
    cuts.completed(Step(5))
    put = cuts.follow(RANK, "v1", Epoch(4))
    assert put is not None
    assert put.vault == "v1"


def test_a_vault_that_has_the_one_that_all_go_back_to_does_not_get_it_again() -> None:
    cuts = Cuts[Snapshot]()
    cuts.given(took(cuts, 5), "", 1)
    cuts.completed(Step(5))
    cuts.back_to(Step(5))
    assert cuts.follow(RANK, "v", Epoch(2)) is None


def test_before_a_cut_is_complete_none_is_given_to_a_new_buddy() -> None:
    cuts = Cuts[Snapshot]()
    took(cuts, 1)
    assert cuts.complete == 0
    assert cuts.follow(RANK, "w", Epoch(1)) is None


def test_a_damaged_one_is_mended_if_it_is_still_held() -> None:
    cuts = Cuts[Snapshot]()
    put, whole = took(cuts, 5), Snapshot(RANK, 5)
    assert cuts.mend(whole)
    assert cuts.has(whole)
    assert not cuts.has(put.snapshot)
    assert not cuts.mend(Snapshot(RANK, 4))


def test_one_that_is_spoiled_makes_that_of_all_void_and_another_follows() -> None:
    spoiling, other = Cuts[Snapshot](), Cuts[Snapshot]()
    for cuts in (spoiling, other):
        cuts.keep(10, now=False)
        took(cuts, 50)
        cuts.completed(Step(50))
        took(cuts, 60)
    assert spoiling.spoiled(Snapshot(RANK, 60)) is False, "another one, though it looks the same"
    assert spoiling.spoiled(spoiling.held[Step(60)])
    assert spoiling.flag(RANK, Step(61)) == VOID
    assert other.flag(RANK, Step(61)) == BUSY
    assert [steps(cuts.agreed(VOID)) for cuts in (spoiling, other)] == [[], [60]]
    for cuts in (spoiling, other):
        assert list(cuts.held) == [50]
        assert cuts.flag(RANK, Step(62)) == WANTED
        took(cuts, 62)
        assert cuts.flag(RANK, Step(63)) == BUSY


def test_other_flags_make_nothing_void() -> None:
    cuts = Cuts[Snapshot]()
    took(cuts, 60)
    assert [steps(cuts.agreed(flag)) for flag in (0, WANTED, BUSY)] == [[]] * 3
    assert list(cuts.held) == [60]


def test_where_members_change_nothing_is_left_of_one_that_was_spoiled() -> None:
    cuts = Cuts[Snapshot]()
    put = took(cuts, 60)
    cuts.spoiled(put.snapshot)
    cuts.changed(0)
    assert cuts.flag(RANK, Step(61)) == 0
    late = took(cuts, 70)
    cuts.changed(0)
    assert not cuts.spoiled(late.snapshot), "it is gone already"
    assert cuts.flag(RANK, Step(71)) == 0
