"""A later step is heard where a round follows it, and told if it is not what was recorded."""

from typing import Any

import pytest

from trainmover.comm import Groups
from trainmover.comm.calls.tap import Call
from trainmover.errors import PeerLost
from trainmover.ids import Rank, Step
from trainmover.sandbox.trace import group_of, trace_of, what_of
from trainmover.torch_internals import compiling
from trainmover.worker.keep import later_steps
from trainmover.worker.keep.first_steps import FirstSteps
from trainmover.worker.keep.later_steps import LaterSteps

SUM = Call("g", 0, "allreduce", (((2,), (2,)), ("f", "f"), None, "SUM"), [], [])
BARRIER = Call("g", 1, "barrier", ((), (), None, None), [], [])


class Kept:
    """What `LaterSteps` asks of a `Recording`: one step with one sum was recorded."""

    recorder = later = None
    trace = trace_of([(group_of(SUM), what_of(SUM))])
    graphs = 1

    def __init__(self) -> None:
        self.kept = FirstSteps(b"record", b"", "first")
        self.buddy_is_gone = False

    def pack_again(self) -> None:
        self.graphs, self.kept = 2, FirstSteps(b"record", b"", "second")
        if self.buddy_is_gone:
            raise PeerLost("gone")


@pytest.fixture(autouse=True)
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    own = Groups()
    monkeypatch.setattr(later_steps, "groups", own)
    monkeypatch.setattr(compiling, "graphs", lambda: 1)
    return own


def after(later: LaterSteps, groups: Groups, step: int, *calls: Call) -> Any:
    """What is told of a step that made these calls."""
    later.begin_step(Step(step))
    for call in calls:
        assert not groups.serves(call)
    later.end_try()
    assert groups.tap is None
    return later.look(Step(step))


def watching(kept: Any) -> LaterSteps:
    return LaterSteps(Rank(3), 1000, kept)


def test_steps_as_recorded_are_not_told(groups: Groups) -> None:
    assert after(watching(Kept()), groups, 10, SUM) is None


def test_other_collectives_are_told_once_and_only_where_a_round_follows(groups: Groups) -> None:
    later = watching(Kept())
    assert after(later, groups, 9, SUM, BARRIER) is None
    fact = after(later, groups, 10, SUM, BARRIER)
    assert (fact.rank, fact.step, fact.compiled) == (3, 10, "first")
    assert after(later, groups, 30, SUM, BARRIER) is None
    assert after(later, groups, 100, SUM) is None


def test_a_new_graph_is_told_with_what_it_was_packed_as(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = watching(kept := Kept())
    monkeypatch.setattr(compiling, "graphs", lambda: 2)
    fact = after(later, groups, 10, SUM)
    assert (fact.trace, fact.compiled) == (kept.trace, "second")


def test_if_the_buddy_is_gone_the_next_look_tells_it(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = watching(kept := Kept())
    kept.buddy_is_gone = True
    monkeypatch.setattr(compiling, "graphs", lambda: 2)
    with pytest.raises(PeerLost):
        after(later, groups, 10, SUM)
    assert after(later, groups, 30, SUM).compiled == "second"


def test_a_rank_that_another_one_serves_does_not_listen(groups: Groups) -> None:
    kept = Kept()
    kept.kept = FirstSteps()
    later = watching(kept)
    later.begin_step(Step(10))
    assert groups.tap is None
    assert later.look(Step(10)) is None
