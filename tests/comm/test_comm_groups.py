"""Groups made while training: processes that have made different ones still meet."""

import os
import signal
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from comm_ranks import Ranks, join_live, meet

from trainmover.comm import groups
from trainmover.comm.meet.listed import Listed, listed_in, make_missing
from trainmover.comm.meet.places import Meetings, _ranks_in, place_of, places_in_order
from trainmover.comm.member import Member
from trainmover.comm.roster import Roster
from trainmover.comm.solo import SoloCommunicator
from trainmover.errors import ProtocolError

three = pytest.mark.parametrize("ranks", [3], indirect=True)


def summed(rank: int, group: Any = None) -> float:
    tensor = torch.tensor([float(rank + 1)])
    dist.all_reduce(tensor, group=group)
    return float(tensor)


def made_and_ended(rank: int) -> float:
    """A group as one step makes it: with a name that torch makes up, or a hashed one."""
    by_count = dist.new_group([0, 1, 2])
    by_hash = dist.new_group([0, 1, 2], use_local_synchronization=True)
    total = summed(rank, by_count) + summed(rank, by_hash)
    for group in (by_count, by_hash):
        dist.destroy_process_group(group)
    return total


def wait_until_lost(rank: int) -> None:
    while not groups.draining:
        summed(rank)


def survive(rank: int, ranks: Ranks, before: Any, after: Any) -> Any:
    store = join_live(rank, ranks)
    kept = before(rank)
    meet(rank, ranks, store)
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    wait_until_lost(rank)
    groups.switchover(2, store)
    return after(rank, kept)


def join(rank: int, ranks: Ranks, after: Any) -> Any:
    store = ranks.connect()
    groups.sandbox()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=rank, world_size=ranks.size)
    groups.switchover(2, store)
    return after(rank, None)


def disturbed(ranks: Ranks, before: Any, after: Any) -> list[Any]:
    """Rank 2 dies after `before`; who takes its place has only the world. What `after` gives."""
    for rank in range(3):
        ranks.start(str(rank), survive, rank, ranks, before, after)
    ranks.start("joiner", join, 2, ranks, after)
    return [ranks.result(name) for name in ("0", "1", "joiner")]


def step(rank: int, _: object = None) -> float:
    return made_and_ended(rank) + summed(rank)


@three
def test_a_group_of_one_step_is_met_by_who_has_made_none_before(ranks: Ranks) -> None:
    def before(rank: int) -> None:
        assert step(rank) + step(rank) == 36

    assert disturbed(ranks, before, step) == [18] * 3


@three
def test_a_group_that_the_joiner_lacks_is_met_where_it_makes_it(ranks: Ranks) -> None:
    """In another order than the others call them: nobody waits in a circle."""

    def before(rank: int) -> list[Any]:
        return [dist.new_group([0, 1, 2]), dist.new_group([0, 2]), dist.new_group([0, 1])]

    def after(rank: int, kept: list[Any] | None) -> Any:
        made = kept or before(rank)
        pair = summed(rank, made[1]) if rank != 1 else 0
        old = summed(rank, made[2]) if rank < 2 else 0
        return summed(rank), pair, summed(rank, made[0]), old

    assert disturbed(ranks, before, after) == [(6, 4, 6, 3), (6, 0, 6, 3), (6, 4, 6, 0)]


@three
def test_a_call_on_a_group_that_the_joiner_never_makes_ends_with_a_sentence(ranks: Ranks) -> None:
    def before(rank: int) -> Any:
        return dist.new_group([0, 1, 2])

    def after(rank: int, kept: Any) -> str:
        if kept is None:
            return ""
        sys.modules["trainmover.comm.groups"].APART_S = 0.3  # type: ignore[attr-defined]
        with pytest.raises(Exception, match=r"test_comm_groups\.py line \d+ has made") as caught:
            summed(rank, kept)
        assert not groups.draining
        return type(caught.value).__name__

    assert disturbed(ranks, before, after) == ["UserError", "UserError", ""]


@three
def test_a_group_that_others_have_destroyed_does_not_hold_up_the_switchover(ranks: Ranks) -> None:
    def before(rank: int) -> None:
        early = dist.new_group([0, 1, 2])
        dist.destroy_process_group(early)

    def after(rank: int, _: object) -> float:
        return summed(rank)

    for rank in range(3):
        ranks.start(str(rank), survive, rank, ranks, before, after)
    ranks.start("joiner", join_with_one_more, 2, ranks)
    assert [ranks.result(name) for name in ("0", "1", "joiner")] == [6] * 3


def join_with_one_more(rank: int, ranks: Ranks) -> float:
    store = ranks.connect()
    groups.sandbox()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=rank, world_size=ranks.size)
    dist.new_group([0, 1, 2])
    groups.switchover(2, store)
    return summed(rank)


@three
def test_what_a_broken_off_step_made_is_not_taken_for_what_the_next_one_makes(
    ranks: Ranks,
) -> None:
    """Rank 0 came further in the attempt than rank 1."""

    def before(rank: int) -> int:
        mark = groups.roster.begin_step()
        if rank == 0:
            groups._connect = lambda member, store: None  # type: ignore[method-assign]
            dist.new_group([0, 1, 2])
            del groups._connect
        return mark

    def after(rank: int, _: object) -> float:
        return step(rank)

    def before_and_disown(rank: int) -> None:
        groups.roster.disown(before(rank))

    assert disturbed(ranks, before_and_disown, after) == [18] * 3


def join_on_a_way(rank: int, ranks: Ranks) -> Any:
    """The joiner stands in the first pass over the data, the others in the second."""
    store = ranks.connect()
    groups.sandbox()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=rank, world_size=ranks.size)
    of_pass = dist.new_group([0, 1, 2])
    groups.switchover(2, store)
    groups.roster.travel()
    dist.destroy_process_group(of_pass)
    dist.destroy_process_group(dist.new_group([1, 2]))
    of_pass, late = dist.new_group([0, 1, 2]), dist.new_group([1, 2])
    groups.roster.arrive()
    return summed(rank, of_pass), summed(rank, late), step(rank)


@three
def test_a_joiner_on_its_way_keeps_the_peers_of_groups_that_the_others_made_anew(
    ranks: Ranks,
) -> None:
    def before(rank: int) -> tuple[Any, Any]:
        dist.destroy_process_group(dist.new_group([0, 1, 2]))
        return dist.new_group([0, 1, 2]), dist.new_group([1, 2])

    def after(rank: int, kept: tuple[Any, Any]) -> Any:
        of_pass, late = kept
        return summed(rank, of_pass), summed(rank, late) if rank else 0, step(rank)

    for rank in range(3):
        ranks.start(str(rank), survive, rank, ranks, before, after)
    ranks.start("joiner", join_on_a_way, 2, ranks)
    answers = [ranks.result(name) for name in ("0", "1", "joiner")]
    assert answers == [(6, 0, 18), (6, 5, 18), (6, 5, 18)]


def stay_while_a_pass_ends(rank: int, ranks: Ranks, when: tuple[str, ...]) -> Any:
    """Epoch 2 is prepared in the background; the script ends its pass before or behind that."""
    store = join_live(rank, ranks)
    of_pass = dist.new_group([0, 1, 2])
    meet(rank, ranks, store)
    if when[rank] == "behind":
        groups.prepare(2, store)
        if "before" not in when:
            assert groups.prepared(2).wait(30)
    summed(rank)
    dist.destroy_process_group(of_pass)
    of_pass = dist.new_group([0, 1, 2])
    if when[rank] == "before":
        groups.prepare(2, store)
    summed(rank, of_pass)
    if rank == 2:
        return None
    groups.drain("the job said so", epoch=2)
    groups.switchover(2, store)
    return summed(rank, of_pass), step(rank)


def join_while_a_pass_ends(rank: int, ranks: Ranks) -> Any:
    store = ranks.connect()
    groups.sandbox()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=rank, world_size=ranks.size)
    of_pass = dist.new_group([0, 1, 2])
    groups.prepare(2, store)
    groups.switchover(2, store)
    groups.roster.travel()
    dist.destroy_process_group(of_pass)
    of_pass = dist.new_group([0, 1, 2])
    groups.roster.arrive()
    return summed(rank, of_pass), step(rank)


@three
@pytest.mark.parametrize(
    "when", [("behind", "behind", ""), ("before", "before", ""), ("behind", "before", "")]
)
def test_a_group_that_took_the_place_of_one_that_had_met_meets_again(
    ranks: Ranks, when: tuple[str, ...]
) -> None:
    for rank in range(3):
        ranks.start(str(rank), stay_while_a_pass_ends, rank, ranks, when)
    ranks.start("joiner", join_while_a_pass_ends, 2, ranks)
    answers = [ranks.result(name) for name in ("0", "1", "joiner", "2")]
    assert answers == [(6, 18)] * 3 + [None]


@three
def test_a_joiner_is_given_groups_that_it_has_not_made(ranks: Ranks) -> None:
    """In the rank's order; of two with the same members the second is in use."""

    def before(rank: int) -> Any:
        dist.destroy_process_group(dist.new_group([0, 1, 2]))
        made = [dist.new_group([0, 1, 2]), dist.new_group([0, 2]), dist.new_group([0, 1, 2])]
        if rank == 2:
            ranks.connect().set("listed", groups.roster.listed())
        return made[-1]

    def after(rank: int, kept: Any) -> Any:
        if kept is None:
            groups.roster.travel()
            make_missing(groups, listed_in(ranks.connect().get("listed")))
            groups.roster.arrive()
            kept = groups.roster.shown()["0-2#2"]
        made_at = kept.member.made_at
        later = dist.new_group([0, 1, 2])
        return summed(rank, kept), made_at, kept.told()[0], later.told()[0], summed(rank, later)

    answers = disturbed(ranks, before, after)
    line = answers[0][1]
    assert line.startswith("test_comm_groups.py line")
    assert answers == [(6, line, "0-2#2", "0-2#3", 6)] * 3


def listed(*groups: tuple[int, ...]) -> list[Listed]:
    return [Listed(ranks, 60.0, "train.py line 7") for ranks in groups]


def roster_of(*groups: tuple[int, ...]) -> Roster:
    roster = Roster(threading.RLock())
    for number, ranks in enumerate(groups):
        carrier: Any = SoloCommunicator()
        roster.add(Member(str(number), 0, len(ranks), timedelta(1), carrier, ranks=ranks))
    return roster


def test_what_a_rank_had_and_a_joiner_lacks_is_told_in_order() -> None:
    roster = roster_of((0, 1, 2), (0, 1))
    had = listed((0, 1, 2), (1, 2), (0, 1), (0, 1), (1, 2))
    missing = [one.ranks for one in roster.stands_with(had)]
    assert missing == [(1, 2), (0, 1), (1, 2)]


def test_what_a_rank_has_destroyed_counts_for_nothing_in_its_joiner() -> None:
    roster = roster_of((0, 1), (0, 1), (0, 2))
    assert roster.stands_with(listed((0, 1), (0, 2))) == []
    world, extra, pair = roster
    assert [one.orphan for one in (world, extra, pair)] == [False, True, False]
    assert [roster.told(one)[0] for one in (world, extra, pair)] == ["0,1#0", "", "0,2#0"]
    roster.adopt(extra)
    assert roster.told(extra)[0] == "0,1#1"


def test_groups_go_with_a_record() -> None:
    roster = roster_of((0, 1), (1, 2))
    before = roster.listed()
    assert [one.ranks for one in listed_in(before)] == [(0, 1), (1, 2)]
    roster.remove(next(iter(roster)))
    assert [one.ranks for one in listed_in(roster.listed())] == [(1, 2)]
    assert listed_in(b"") == []


@pytest.mark.parametrize("kept", [b"{", b"[3]", b'[[["a"], 1, ""]]', b"[[[0]]]"])
def test_groups_that_are_damaged_in_a_record_are_told(kept: bytes) -> None:
    with pytest.raises(ProtocolError, match="damaged"):
        listed_in(kept)


def test_places_follow_from_the_order() -> None:
    members = [(0, 1, 2), (0, 1), (0, 1, 2), (0, 1)]
    roster = roster_of(*members)
    assert [roster.told(one)[0] for one in roster] == places_in_order(members)


@three
def test_each_group_says_its_own_name(ranks: Ranks) -> None:
    assert ranks.run(names) == [["0", "1", "2"]] * 3


def names(rank: int, ranks: Ranks) -> list[str]:
    join_live(rank, ranks)
    made = [dist.new_group([0, 1, 2]), dist.new_group([0, 1, 2])]
    return [group.group_name for group in (dist.group.WORLD, *made)]  # type: ignore[union-attr]


def member(ranks: tuple[int, ...], born: int, **others: Any) -> Member:
    carrier: Any = SoloCommunicator()
    return Member("7", 0, len(ranks), timedelta(1), carrier, ranks=ranks, born=born, **others)


def test_a_place_is_told_by_members_and_by_older_groups_of_the_same() -> None:
    world, older, gone = member((0, 1, 2, 3), 0), member((1, 2), 1), member((1, 2), 2, orphan=True)
    newest = member((1, 2), 3)
    made = [world, older, gone, newest]
    assert [place_of(one, made) for one in (world, older, newest)] == ["0-3#0", "1,2#0", "1,2#1"]
    assert place_of(newest, [world, newest]) == "1,2#0"


@pytest.mark.parametrize(
    ("ranks_of", "words"),
    [((0,), "0#0"), ((0, 1), "0,1#0"), ((2, 1, 0), "2,1,0#0"), ((0, 4, 8), "0-8/4#0")],
)
def test_words_of_a_place_can_be_read(ranks_of: tuple[int, ...], words: str) -> None:
    assert place_of(member(ranks_of, 0), []) == words
    assert set(_ranks_in(words + ".0")) == set(ranks_of)


def test_what_is_no_place_is_damage() -> None:
    with pytest.raises(ProtocolError, match="is no place"):
        _ranks_in("gate")


def test_a_meeting_has_another_name_each_time_in_an_epoch() -> None:
    meetings = Meetings()
    first = meetings.name(4, "0-3#0")
    meetings.note(4, [first])
    assert [first, meetings.name(4, "0-3#0"), meetings.name(5, "0-3#0")] == [
        "0-3#0.0",
        "0-3#0.1",
        "0-3#0.0",
    ]
