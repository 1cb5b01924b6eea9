"""Which lines are shown, and under which rank."""

import pytest

from trainmover.agent.decide import Place, in_words, place_after, shown_as, written
from trainmover.ids import Epoch, Slot
from trainmover.protocol.messages import (
    Bind,
    Go,
    Hold,
    Leave,
    LogSpec,
    Order,
    Prepare,
    RunRank,
    WarmUp,
)

RUN = RunRank(epoch=Epoch(1), slot=Slot(2), buddies={})
WARM = WarmUp(slot=Slot(0), records={})
HOLD = Hold(slot=Slot(1), records={})
BIND = Bind(epoch=Epoch(2), slot=Slot(1), records={})
GO = Go(epoch=Epoch(2))
LEAVE = Leave(epoch=Epoch(2))


def place_of(*orders: Order) -> Place:
    place = Place()
    for order in orders:
        place = place_after(place, order)
    return place


@pytest.mark.parametrize(
    ("orders", "rank"),
    [
        ([], None),
        ([RUN], 5),
        ([RUN, Prepare(epoch=Epoch(2)), GO], 5),
        ([WARM], None),
        ([WARM, GO], None),
        ([WARM, BIND], None),
        ([WARM, HOLD], None),
        ([HOLD, GO], None),
        ([HOLD, BIND, GO], 3),
        ([WARM, BIND, GO], 3),
        ([RUN, LEAVE], None),
        ([RUN, LEAVE, WARM], None),
        ([WARM, BIND, LEAVE, GO], None),
    ],
)
def test_only_what_runs_for_real_is_shown(orders: list[Order], rank: int | None) -> None:
    everything = LogSpec()
    assert shown_as(place_of(*orders), everything, 2, 1, "stdout") == rank


def test_a_machine_that_gets_or_loses_ranks_says_so() -> None:
    warm, live, left = place_of(WARM), place_of(RUN), place_of(RUN, LEAVE)
    assert [in_words(Place(), warm, 1), in_words(live, live, 1), in_words(left, warm, 1)] == [
        ""
    ] * 3
    assert in_words(warm, live, 1) == "has rank 2"
    assert in_words(warm, live, 8) == "has ranks 16-23"
    assert in_words(live, left, 8) == "its ranks are on another machine"


def test_show_limits_ranks_tee_overrules_it_and_a_redirect_hides() -> None:
    live = place_of(RUN)
    assert shown_as(live, LogSpec(show=[0]), 2, 0, "stdout") is None
    assert shown_as(live, LogSpec(show=[4]), 2, 0, "stdout") == 4
    assert shown_as(live, LogSpec(show=[0], tee={0: 1}), 2, 0, "stdout") == 4
    assert shown_as(live, LogSpec(show=[0], tee={0: 1}), 2, 0, "stderr") is None
    assert shown_as(live, LogSpec(redirects={0: 3}), 2, 0, "stderr") is None


def test_files_are_written_for_named_streams_or_for_all_when_none_is_named() -> None:
    assert not written(LogSpec(), 0, "stdout")
    assert written(LogSpec(log_dir="/l"), 0, "stderr")
    named = LogSpec(log_dir="/l", redirects={0: 1}, tee={1: 2})
    cases = [(0, "stdout"), (0, "stderr"), (1, "stdout"), (1, "stderr")]
    assert [written(named, local, stream) for local, stream in cases] == [True, False, False, True]
