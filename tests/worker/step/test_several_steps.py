"""Several steps behind one fetch: what lines before the first have made stays known."""

from types import SimpleNamespace
from typing import Any

import pytest

from trainmover.errors import StateMismatch
from trainmover.ids import Rank, Step
from trainmover.state.script.comparison import Difference
from trainmover.state.tracked import Tracked
from trainmover.worker.join.refusal import Refusal
from trainmover.worker.join.way.journey import Journey
from trainmover.worker.step.deposit import Deposit
from trainmover.worker.step.keeper import Begun, Moment, RankRecord

FETCH = Moment(b"", {})


def record(step: int) -> RankRecord:
    return RankRecord(Step(step), False, Step(5), [], FETCH, FETCH, [])


def test_the_records_of_all_have_the_variables_of_the_first() -> None:
    deposit: Any = Deposit.__new__(Deposit)
    deposit.latest, deposit.several, deposit._buddy = record(5), True, ""
    deposit._tracked = Tracked()
    for step in (5, 6, 7):
        said = f"at {step}".encode()
        deposit.begin_step(Step(step), (), {}, small={}, variables=lambda said=said: said)
        assert deposit.latest.inputs[0] == step
        assert deposit.latest.begun.variables == b"at 5"


def journey(found: list[Difference], last: int) -> tuple[Journey, Any]:
    """Of a rank that was lost in step `last`. At the first step there is `found`."""
    known = record(last).but(inputs=[last, 0], begun=Begun(b"at 5", {}))
    member: Any = SimpleNamespace(calls=Step(4), tracked=Tracked())
    refusal: Any = SimpleNamespace(put_back=lambda: None, not_begun=lambda begun: list(found))
    way: Any = SimpleNamespace(record=known, in_loops=False, committed=Step(last), onward=None)
    return Journey(member, way, closing=False, arrive=lambda: None, refusal=refusal), member


@pytest.mark.parametrize("last", [5, 7])
def test_they_are_compared_at_the_first_step_wherever_the_rank_was_lost(last: int) -> None:
    """(`last` is passed over, too: so what it is called with is not asked for here.)"""
    other = Difference("finished", "train.py", 3, "1", "2")
    gone, member = journey([other], last)
    gone._hash_again = lambda: 0  # type: ignore[method-assign]
    for calls in range(4, last):
        member.calls = Step(calls)
        gone.compare_inputs((), {})
    assert gone._apart == [other]


def test_at_a_fetch_behind_them_what_is_compared_there_must_be_the_rank_s() -> None:
    differences = [Difference(name, "train.py", 3, "1", "2") for name in ("finished", "order")]
    comparison = SimpleNamespace(names_in=lambda own: {"finished"})
    variables: Any = SimpleNamespace(comparison=comparison, capture=lambda *, full: b"")
    refusal = Refusal(Rank(0), variables, SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
    refusal.refuse_kept(differences[1:])
    with pytest.raises(StateMismatch, match="`finished`"):
        refusal.refuse_kept(differences)
