"""What follows from the orders a rank was given, and from where it stands."""

from collections.abc import Callable
from typing import Any

import pytest

from trainmover.errors import StateMismatch, Unwind, UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol import messages as m
from trainmover.rank.standing import NOT_YET, Standing

RANK = Rank(3)


def standing(**fields: Any) -> Standing:
    return Standing(**fields)


def switch(epoch: int) -> m.Switch:
    return m.Switch(epoch=Epoch(epoch), committed=Step(7), sources={}, records={}, buddies={})


def verdict(epoch: int, committed: int) -> m.Verdict:
    return m.Verdict(epoch=Epoch(epoch), committed=Step(committed))


def passes(one: Standing, step: int, **agreed: Any) -> bool:
    given: dict[str, Any] = {"newest": step, "oldest": step, "pause": 0, "cut": False} | agreed
    return one.pass_gate(RANK, Step(step), **given)


# --- interruptions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "ordered", "pending"), [(1, 0, False), (1, 1, False), (1, 2, True)]
)
def test_an_interrupt_of_a_newer_epoch_is_pending(epoch: int, ordered: int, pending: bool) -> None:
    assert standing(epoch=epoch, ordered=ordered).pending is pending


def test_an_interrupt_fixes_the_position_once() -> None:
    one = standing(live=True, epoch=1, committed=7, gate=8, verdict=verdict(1, 5))
    assert one.interrupt(Epoch(2))
    assert one.position(RANK, 5) == m.Position(
        rank=RANK, epoch=Epoch(2), committed=Step(7), gate=Step(8), patience_ms=5
    )
    assert one.verdict is None, "that was about another epoch"
    assert not one.interrupt(Epoch(2))
    assert not one.interrupt(Epoch(1))
    assert one.ordered == 2


def test_who_holds_no_rank_has_no_position() -> None:
    one = standing()
    assert one.interrupt(Epoch(2))
    assert one.position(RANK, 0) is None


# --- the gate -------------------------------------------------------------------------------------


def test_a_gate_is_neither_entered_nor_passed_once_a_newer_epoch_was_ordered() -> None:
    one = standing(live=True, epoch=1, committed=7)
    assert not one.enter_gate(Step(8), drains=True)
    assert one.gate == 0
    assert one.enter_gate(Step(8), drains=False)
    assert one.gate == 8
    one.interrupt(Epoch(2))
    assert not passes(one, 8, cut=True)
    assert (one.committed, one.gate, one.cut_at) == (7, 8, 0)
    assert not one.enter_gate(Step(8), drains=False)


def test_what_all_have_agreed_upon_holds_with_the_commit() -> None:
    one = standing(live=True, epoch=1, committed=7, pause_at=2, gate=8)
    assert passes(one, 8, pause=3, cut=True)
    assert (one.committed, one.gate, one.pause_at, one.cut_at) == (8, 0, 3, 8)
    assert one.cut_here() == 8
    assert one.cut_here() == 0, "once"
    assert passes(one, 9, pause=2)
    assert (one.pause_at, one.cut_at) == (3, 0)


def test_ranks_in_different_steps_end_the_job() -> None:
    with pytest.raises(UserError, match="Rank 3 is in step 8, another in step 7"):
        passes(standing(live=True, epoch=1), 8, newest=8, oldest=7)
    with pytest.raises(UserError, match="Rank 3 is in step 8, another in step 9"):
        passes(standing(live=True, epoch=1), 8, newest=9, oldest=8)


def test_a_snapshot_is_not_taken_after_another_step_than_all_have_agreed_upon() -> None:
    one = standing(committed=8)
    one.agree_on_cut(Step(7))
    assert one.cut_here() == 0
    one.agree_on_cut(Step(8))
    assert one.cut_here() == 8


@pytest.mark.parametrize(("committed", "commits"), [(8, True), (7, False)])
def test_a_step_cut_short_is_what_the_verdict_says(committed: int, commits: bool) -> None:
    one = standing(live=True, epoch=1, committed=7, gate=8)
    one.interrupt(Epoch(2))
    assert one.judged(RANK, Step(8)) is NOT_YET
    one.obey(verdict(1, 8))
    assert one.judged(RANK, Step(8)) is NOT_YET, "of an epoch before"
    one.obey(verdict(2, committed))
    assert one.judged(RANK, Step(8)) is commits
    assert (one.committed, one.gate) == (committed, 0)


def test_who_was_not_in_the_gate_cannot_commit() -> None:
    one = standing(live=True, epoch=1, committed=7, ordered=2, verdict=verdict(2, 8))
    with pytest.raises(StateMismatch, match="Step 8 was ordered to commit"):
        one.judged(RANK, Step(8))


def test_a_step_is_not_judged_where_all_go_back() -> None:
    one = standing(live=True, epoch=1, gate=8, ordered=2, back=2)
    with pytest.raises(Unwind):
        one.judged(RANK, Step(8))


# --- pauses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pause", "epoch", "discarded", "counts"),
    [(2, 1, 0, True), (2, 2, 0, False), (2, 1, 2, False), (3, 1, 2, True), (0, 0, 0, False)],
)
def test_a_pause_counts_until_it_is_over_or_taken_back(
    pause: int, epoch: int, discarded: int, counts: bool
) -> None:
    asked = standing(epoch=epoch, discarded=discarded)
    asked.obey(m.PauseAt(epoch=Epoch(pause)))
    agreed = standing(epoch=epoch, discarded=discarded, pause_at=pause)
    assert asked.pause_flag == (pause if counts else 0)
    assert agreed.paused is counts
    assert not asked.paused


# --- the boundary ---------------------------------------------------------------------------------


def target(one: Standing, *, drains: bool = False, pausing: bool = True) -> object:
    return one.target(RANK, drains=drains, pausing=pausing)


def test_between_two_steps_it_trains_on_unless_members_change() -> None:
    one = standing(live=True, epoch=1, committed=7)
    assert target(one) is None
    assert target(one, drains=True) is NOT_YET, "the controller will say why"
    one.pause_at = Epoch(2)
    assert target(one) == 2
    assert target(one, pausing=False) is None, "only a fetch is a place to stop"
    one.interrupt(Epoch(3))
    assert target(one) is NOT_YET
    one.obey(verdict(3, 7))
    assert target(one) == 3


def test_who_has_committed_something_else_than_the_job_must_not_go_on() -> None:
    one = standing(live=True, epoch=1, committed=7, ordered=2, verdict=verdict(2, 8))
    with pytest.raises(StateMismatch, match="Rank 3 has committed step 7, the job step 8"):
        target(one)


def test_a_switch_is_waited_for_until_it_is_of_no_use() -> None:
    one = standing(live=True, epoch=1, pause_at=2)
    one.obey(switch(1))
    assert one.next_switch(Epoch(2)) is NOT_YET
    one.obey(switch(2))
    assert one.next_switch(Epoch(2)) is one.switch
    one.obey(m.Discard(epoch=Epoch(2)))
    assert one.next_switch(Epoch(2)) is None
    overtaken = standing(live=True, epoch=1, ordered=3)
    assert overtaken.next_switch(Epoch(2)) is None


def test_go_puts_in_force_what_was_connected_unless_a_newer_epoch_was_ordered() -> None:
    joiner = standing(ordered=2, cut_at=5)
    joiner.obey(m.Go(epoch=Epoch(2)))
    assert not joiner.live, "it has met nobody yet"
    joiner.connected(Epoch(2))
    joiner.obey(m.Go(epoch=Epoch(2)))
    assert (joiner.epoch, joiner.live, joiner.pending, joiner.cut_at) == (2, True, False, 0)
    overtaken = standing(epoch=1, ordered=3, switched=2)
    overtaken.obey(m.Go(epoch=Epoch(2)))
    assert (overtaken.epoch, overtaken.live) == (1, False)
    late = standing(epoch=4, ordered=4, switched=4)
    late.obey(m.Go(epoch=Epoch(2)))
    assert late.epoch == 4


def test_a_leaver_that_is_overtaken_leaves_all_the_same() -> None:
    """It wakes only when the next recovery has been ordered, which counts on others."""
    leaver = standing(epoch=1, ordered=3, leave=2)
    with pytest.raises(Unwind):
        leaver.in_force(Epoch(2))
    assert standing(epoch=1, ordered=3).in_force(Epoch(2)) is False
    assert standing(epoch=2, ordered=3, leave=1).in_force(Epoch(2)) is True
    assert standing(epoch=1, ordered=2).in_force(Epoch(2)) is NOT_YET


# --- lives ----------------------------------------------------------------------------------------


def test_a_joiner_takes_the_newest_order_that_is_meant_for_it() -> None:
    one = standing(switch=switch(3))
    assert one.next_to_join(Epoch(5), Epoch(0)) is NOT_YET, "that was for an earlier life"
    one.obey(switch(5))
    assert one.next_to_join(Epoch(5), Epoch(0)) is one.switch
    assert one.next_to_join(Epoch(5), Epoch(5)) is NOT_YET, "that was in vain"
    one.interrupt(Epoch(6))
    assert one.next_to_join(Epoch(5), Epoch(0)) is NOT_YET, "that is overtaken"
    one.obey(m.Leave(epoch=Epoch(6)))
    with pytest.raises(Unwind):
        one.next_to_join(Epoch(5), Epoch(0))


def test_what_was_said_to_one_life_is_not_said_to_the_next() -> None:
    one = standing()
    one.begin(Epoch(1))
    assert one.enter_gate(Step(1), drains=False)
    one.interrupt(Epoch(2))
    one.obey(m.Leave(epoch=Epoch(2)))
    assert one.goes_back
    assert one.leaves()
    assert one.leaves(Epoch(2))
    one.end_run()
    assert (one.live, one.gate, one.position(RANK, 0)) == (False, 0, None)
    assert not one.leaves(Epoch(3))
    one.become(Step(7))
    assert one.committed == 7


def test_who_is_to_go_back_does_so_also_if_the_next_epoch_comes_before_it_looks() -> None:
    one = standing(live=True, epoch=1)
    one.interrupt(Epoch(2))
    one.obey(m.Leave(epoch=Epoch(2)))
    one.interrupt(Epoch(4))
    with pytest.raises(Unwind):
        one.judged(RANK, Step(8))
    assert one.goes_back, "its snapshots are what it goes back to"


def test_a_leaver_that_is_interrupted_does_not_go_back() -> None:
    one = standing(live=True, epoch=1)
    one.obey(m.Leave(epoch=Epoch(2)))
    one.interrupt(Epoch(3))
    with pytest.raises(Unwind):
        one.in_force(Epoch(2))
    assert not one.goes_back


WAITS: dict[str, Callable[[Standing], object]] = {
    "verdict": lambda one: one.judged(RANK, Step(8)),
    "boundary": lambda one: target(one),
    "switch": lambda one: one.next_switch(Epoch(2)),
    "go": lambda one: one.in_force(Epoch(2)),
    "join": lambda one: one.next_to_join(Epoch(2), Epoch(0)),
}


@pytest.mark.parametrize("wait", WAITS)
def test_nothing_that_is_waited_for_outlives_exit(wait: str) -> None:
    one = standing(live=True, epoch=1, ordered=2)
    assert WAITS[wait](one) is NOT_YET
    one.obey(m.Exit())
    with pytest.raises(Unwind):
        WAITS[wait](one)


def test_who_is_done_takes_part_in_changes_until_it_is_over() -> None:
    one = standing(live=True, epoch=1, committed=9)
    assert one.finish() == 9
    assert one.after_the_end() is NOT_YET
    one.interrupt(Epoch(2))
    assert one.after_the_end() is True
    position = one.position(RANK, 0)
    assert position is not None
    assert position.finished
    one.obey(m.Exit())
    assert one.after_the_end() is False
