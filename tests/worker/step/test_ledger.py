"""Committed rows are told once, the first of an epoch at once and with its gap."""

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Committed, WorkerFact
from trainmover.worker.standing import GuardedStanding
from trainmover.worker.step.keeper import row_of
from trainmover.worker.step.ledger import Ledger


def ledger() -> tuple[Ledger, list[WorkerFact]]:
    said: list[WorkerFact] = []
    return Ledger(Rank(3), 4, GuardedStanding(epoch=Epoch(2)), said.append), said


def steps(fact: WorkerFact) -> list[int]:
    assert isinstance(fact, Committed)
    return [row.step for row in fact.rows]


def test_the_first_commit_of_an_epoch_is_told_at_once() -> None:
    book, said = ledger()
    book.first_of = Epoch(2)
    book.commit(Step(7), {"loss": 0.5})
    (fact,) = said
    assert isinstance(fact, Committed)
    assert (fact.rank, fact.epoch, fact.first, fact.gap_us) == (3, 2, True, None)
    assert fact.rows[0].values == {"loss": 0.5}
    assert book.first_of is None


def test_others_are_told_together_and_the_last_at_the_end() -> None:
    book, said = ledger()
    for step in range(1, 60):
        book.commit(Step(step), {})
    book.close()
    book.close()
    assert [step for fact in said for step in steps(fact)] == list(range(1, 60))
    assert not any(fact.first for fact in said if isinstance(fact, Committed))
    assert book.rows == []


def test_a_later_epoch_is_told_with_the_gap_it_left() -> None:
    book, said = ledger()
    for step in (1, 2, 3):
        book.commit(Step(step), {})
    book.first_of = Epoch(2)
    book.commit(Step(4), {})
    last = said[-1]
    assert isinstance(last, Committed)
    assert last.first
    assert last.gap_us is not None
    assert last.median_us is not None


def test_what_an_agent_may_have_died_with_is_in_doubt() -> None:
    book, _ = ledger()
    for step in range(1, 5):
        book.commit(Step(step), {})
        book.close()
    book.commit(Step(5), {})
    assert [row_of(row).step for row in book.in_doubt] == [1, 2, 3, 4, 5]
