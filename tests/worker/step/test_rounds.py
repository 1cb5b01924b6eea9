"""Rounds come after steps that all ranks know; of ranks with equal state one tells the hashes."""

from typing import Any, cast

import pytest
import torch
from torch import Tensor

from trainmover.comm import Drained
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Fingerprinted, WorkerFact
from trainmover.state.tracked import Tracked
from trainmover.worker.keep.rounds import Rounds, is_due
from trainmover.worker.standing import GuardedStanding
from trainmover.worker.step.gate import Gate
from trainmover.worker.step.likeness import Likeness

DUE = Step(3)


class Together:
    """The gates of all ranks: `gather` first collects what each has to say, then tells it."""

    def __init__(self, size: int) -> None:
        self.rows = torch.zeros((size, 2), dtype=torch.int64)

    def of(self, rank: int) -> Gate:
        class OneGate:
            likeness = Likeness()
            cut = 0

            def gather(_, mine: Tensor) -> Tensor:
                self.rows[rank] = mine
                return self.rows

        return cast(Gate, OneGate())


class Broken:
    """The gate of a rank that is interrupted."""

    likeness = Likeness()

    def gather(self, mine: Tensor) -> Tensor:
        raise Drained


def tracked(value: float) -> Tracked:
    made = Tracked()
    model = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(model.weight, value)
    torch.nn.init.constant_(model.bias, 0.0)
    made.add("model", model)
    return made


def rounds(rank: int, gate: Any, said: list[WorkerFact], *, tainted: bool = False) -> Rounds:
    standing = GuardedStanding(epoch=Epoch(4))
    return Rounds(
        Rank(rank), 1000, gate=gate, standing=standing, tainted=lambda: tainted, say=said.append
    )


def test_a_round_follows_early_steps_and_then_every_so_many() -> None:
    due = [step for step in range(1, 3001) if is_due(Step(step), 1000)]
    assert due == [3, 10, 30, 100, 300, 1000, 2000, 3000]
    assert [step for step in range(1, 60) if is_due(Step(step), 20)] == [3, 10, 20, 30, 40]
    assert not any(is_due(Step(step), 0) for step in range(1, 100))


def test_equal_ranks_refer_to_the_lowest_and_one_of_a_layout_tells_the_paths() -> None:
    together, values = Together(4), [1.0, 2.0, 1.0, 2.0]
    ranks = [rounds(rank, together.of(rank), []) for rank in range(4)]
    for _ in range(2):  # The first time only to fill the rows.
        said: list[WorkerFact] = []
        for each, value in zip(ranks, values, strict=True):
            each._say, each._told = said.append, set()
            each.after(DUE, tracked(value))
    facts = [fact for fact in said if isinstance(fact, Fingerprinted)]
    assert [fact.rank for fact in facts] == [0, 1, 2, 3]
    assert [fact.like for fact in facts] == [None, None, 0, 1]
    assert [bool(fact.shared) for fact in facts] == [True, True, False, False]
    assert [fact.paths is not None for fact in facts] == [True, False, False, False]
    assert {(fact.epoch, fact.step, fact.layout) for fact in facts} == {(4, DUE, facts[0].layout)}


def test_paths_are_told_once() -> None:
    said: list[Any] = []
    each = rounds(0, Together(1).of(0), said)
    each.after(DUE, tracked(1.0))
    each.after(DUE, tracked(2.0))
    assert [fact.paths is None for fact in said] == [False, True]
    assert [fact.sections == [] for fact in said] == [False, True]


@pytest.mark.parametrize(
    ("gate", "tainted", "step"),
    [(Broken(), False, 3), (Together(1).of(0), True, 3), (Together(1).of(0), False, 4)],
    ids=["interrupted", "draining", "not due"],
)
def test_otherwise_nothing_is_said(gate: Any, tainted: bool, step: int) -> None:
    said: list[WorkerFact] = []
    rounds(0, gate, said, tainted=tainted).after(Step(step), tracked(1.0))
    assert said == []


def two_ranks(other: float) -> Gate:
    """The gate of rank 0, whose neighbour holds `other`."""
    together = Together(2)
    rounds(1, together.of(1), []).after(DUE, tracked(other))
    return together.of(0)


def keeping(gate: Gate, kept: list[Step], *, committed: int) -> GuardedStanding:
    """The standing of rank 0 behind a round, at a boundary after that many steps."""
    standing = GuardedStanding(epoch=Epoch(4), committed=Step(committed))
    each = Rounds(
        Rank(0),
        1000,
        gate=gate,
        standing=standing,
        tainted=lambda: False,
        say=lambda fact: None,
        keep_own=lambda: kept.append(DUE),
    )
    each.after(Step(committed), tracked(1.0))
    return standing


def test_what_a_gate_has_shown_is_looked_at_in_a_round_at_once() -> None:
    gate, kept = two_ranks(2.0), list[Step]()
    assert keeping(gate, kept, committed=17).cut_at == 0, "no gate has shown anything"
    gate.likeness.known = gate.likeness.parted = True
    assert keeping(gate, kept, committed=18).cut_at == 18
    assert kept == [DUE]
    assert not gate.likeness.known
    assert keeping(gate, kept, committed=19).cut_at == 0, "once"


def test_a_snapshot_on_its_way_is_waited_for() -> None:
    gate, kept = two_ranks(2.0), list[Step]()
    gate.likeness.known = gate.likeness.parted = True
    gate.cut = 2
    assert keeping(gate, kept, committed=18).cut_at == 0
    assert kept == [DUE]


def test_ranks_that_are_alike_behind_it_have_gradients_that_tell_nothing() -> None:
    gate, kept = two_ranks(1.0), list[Step]()
    gate.likeness.known = gate.likeness.parted = True
    assert keeping(gate, kept, committed=18).cut_at == 0
    assert (gate.likeness.known, gate.likeness.vain, kept) == (True, True, [])
