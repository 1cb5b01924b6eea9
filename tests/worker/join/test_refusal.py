"""Why a run in the sandbox must not become its rank."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainmover.errors import StateMismatch, Unwind
from trainmover.ids import Rank, Step
from trainmover.worker.join.refusal import Refusal
from trainmover.worker.step.keeper import Moment, RankRecord


class Graphs:
    """Restores nothing. notes: what could not be had, None where the script stands elsewhere;
    unlike: what is another behind that"""

    def __init__(self, notes: list[str] | None, unlike: tuple[str, ...] = ()) -> None:
        self.notes, self.differs = notes, unlike

    def restore(self, *_: object, **__: object) -> list[str] | None:
        return self.notes

    def unlike(self, *_: object) -> list[str]:
        return [*self.differs]


def refusal_of(graphs: Graphs, *ordinals: int) -> Refusal:
    loops: Any = SimpleNamespace(ordinals=[*ordinals], member=[])
    scripts: Any = graphs
    return Refusal(Rank(1), loops, scripts)


@pytest.mark.parametrize("keeps", [True, False])
def test_casts_that_outlast_a_step_are_refused(*, keeps: bool) -> None:
    """Torch keeps them, and tells nobody."""
    refusal = refusal_of(Graphs([]))
    refusal.foresee([])
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=keeps):
        if keeps:
            with pytest.raises(StateMismatch, match="lies around the steps"):
                refusal.foresee([])
        else:
            refusal.foresee([])


@pytest.mark.parametrize(
    ("graphs", "why"),
    [
        (Graphs([]), ""),
        (Graphs(["`main.seen` is not to be had"]), "main.seen"),
        (Graphs([], ("`main.seen` is 2, not 1",)), "is 2, not 1"),
        (Graphs(None), "another line"),
    ],
)
def test_who_cannot_hold_what_the_rank_held_is_refused(graphs: Graphs, why: str) -> None:
    refusal = refusal_of(graphs)
    with pytest.raises(StateMismatch, match="not to be had"):
        refusal.check()
    assert "rank 1" in refusal.why
    refusal = refusal_of(graphs)
    refusal.graph = object()  # type: ignore[assignment]
    if not why:
        refusal.check()
        return
    with pytest.raises(StateMismatch, match=why):
        refusal.check()
    with pytest.raises(Unwind):  # The script has caught it.
        refusal.check()


def record(*ordinals: int, uncarried: str = "") -> RankRecord:
    places: list[list[Any]] = [[ordinal, {}, b"", 0, [], []] for ordinal in ordinals]
    return RankRecord(Step(4), places, Moment(b"", {}), uncarried=uncarried)


def test_a_rank_in_another_loop_is_seen_and_what_cannot_be_carried_is_refused() -> None:
    refusal = refusal_of(Graphs([]), 0)
    for there, elsewhere in ((record(0), False), (record(1), True), (record(0, 0), True)):
        refusal.foresee([there])
        assert (refusal.elsewhere is there) == elsewhere
    with pytest.raises(StateMismatch, match="was compiled"):
        refusal.foresee([record(0, uncarried="`code` was compiled from a text")])
