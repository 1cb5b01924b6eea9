"""A rank's own time is all but its waits; that of a step which was disturbed is not told."""

import time

import pytest

from trainmover.comm.choice import Waits
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Committed, Took, WorkerFact
from trainmover.worker.standing import GuardedStanding
from trainmover.worker.step.ledger import Ledger
from trainmover.worker.step.own_time import OwnTime


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """In nanoseconds: the wall's, the thread's, and what was waited."""
    now = {"wall": 0, "thread": 0, "waited": 0}
    monkeypatch.setattr(time, "monotonic_ns", lambda: now["wall"])
    monkeypatch.setattr(time, "thread_time_ns", lambda: now["thread"])
    return now


def passes(clocks: dict[str, int], wall: int, thread: int, waited: int) -> None:
    clocks["wall"] += wall
    clocks["thread"] += thread
    clocks["waited"] += waited


def test_waits_and_the_gate_itself_are_not_counted(clocks: dict[str, int]) -> None:
    own = OwnTime(Waits(lambda: clocks["waited"], list), list)
    own.at_gate()
    own.passed()
    assert own.took(Step(1)) is None
    passes(clocks, 100_000, 60_000, 30_000)
    own.at_gate()
    passes(clocks, 900_000, 1_000, 0)
    own.passed()
    assert own.took(Step(2)) == Took(step=Step(2), own_us=70, cpu_us=60)
    assert own.took(Step(3)) is None


def test_where_nobody_counts_waits_nothing_is_known() -> None:
    own = OwnTime(None, list)
    for step in range(3):
        own.at_gate()
        own.passed()
        assert own.took(Step(step)) is None


def test_the_first_step_of_an_epoch_is_told_without_it() -> None:
    said: list[WorkerFact] = []
    book = Ledger(Rank(3), 4, GuardedStanding(epoch=Epoch(2)), said.append)
    took = {step: Took(step=Step(step), own_us=10 * step, cpu_us=step) for step in (7, 8, 9)}
    book.first_of = Epoch(2)
    for step in (7, 8, 9):
        book.commit(Step(step), {}, took=took[step])
    book.close()
    told = [one for fact in said if isinstance(fact, Committed) for one in fact.took]
    assert told == [took[8], took[9]]
    assert all(fact.decided_on is None or not fact.decided_on.took for fact in said
               if isinstance(fact, Committed))  # fmt: skip
