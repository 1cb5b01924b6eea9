"""What ranks have committed comes through columns as it was told: nothing is lost, or another's."""

import struct
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import (
    Columns,
    Committed,
    CommittedHere,
    Draw,
    Row,
    Took,
    columns_of,
    decode_agent_fact,
    encode,
    plain,
)

DRAWS = st.lists(st.builds(Draw, source=st.just("a"), data_pass=st.just(0), ids=st.just([3])))
VALUES = st.dictionaries(st.sampled_from(["loss", "norm"]), st.floats(), max_size=2)
ROWS = st.lists(
    st.builds(
        Row,
        step=st.integers(1, 4).map(Step),
        at_us=st.integers(0, 9),
        values=VALUES,
        samples=st.one_of(st.just([]), DRAWS),
    ),
    max_size=4,
)
TOOK = st.lists(st.builds(Took, step=st.just(Step(1)), own_us=st.integers(0, 9), cpu_us=st.just(1)))
FACTS = st.lists(
    st.builds(
        Committed,
        rank=st.integers(0, 3).map(Rank),
        epoch=st.integers(1, 2).map(Epoch),
        rows=ROWS,
        first=st.booleans(),
        took=TOOK,
    ),
    max_size=6,
)
Kept = tuple[Epoch, Step, int, tuple[tuple[str, ...], bytes], list[Draw]]


def kept(epoch: Epoch, row: Row) -> Kept:
    """Bit for bit: a NaN is itself."""
    return epoch, row.step, row.at_us, plain(row.values), row.samples


def by_rank(columns: list[Columns]) -> dict[Rank, list[Kept]]:
    there: dict[Rank, list[Kept]] = defaultdict(list)
    for alike in columns:
        for rank, rows in alike.each():
            there[rank] += [kept(alike.epoch, row) for row in rows]
    return there


@given(FACTS)
def test_each_rank_s_rows_are_all_there_in_its_order_bit_for_bit(facts: list[Committed]) -> None:
    columns = columns_of(facts)
    assert all(alike.fit for alike in columns)
    told: dict[Rank, list[Kept]] = defaultdict(list)
    for fact in facts:
        told[fact.rank] += [kept(fact.epoch, row) for row in fact.rows]
    assert by_rank(columns) == {rank: rows for rank, rows in told.items() if rows}


@given(FACTS)
def test_what_a_rank_has_taken_is_told_once(facts: list[Committed]) -> None:
    told = [(fact.rank, took) for fact in facts if fact.rows for took in fact.took]
    columns = columns_of(facts)
    there = [each for alike in columns for each in alike.each_took()]
    assert sorted(map(repr, there)) == sorted(map(repr, told))
    firsts = sum(fact.first and bool(fact.rows) for fact in facts)
    assert sum(len(alike.ranks) for alike in columns if alike.first) == firsts


@given(FACTS)
def test_they_come_through_a_wire(facts: list[Committed]) -> None:
    said = CommittedHere(told=columns_of(facts))
    assert decode_agent_fact(encode(said)) == said


def test_ranks_that_report_the_same_are_one_string_of_numbers() -> None:
    facts = [
        Committed(
            rank=Rank(rank),
            epoch=Epoch(1),
            rows=[Row(step=Step(s), at_us=s, values={"loss": rank + s / 8}) for s in (4, 5)],
        )
        for rank in range(8)
    ]
    [alike] = columns_of(facts)
    assert alike.values == struct.pack("<16d", *(r + s / 8 for r in range(8) for s in (4, 5)))
    assert (alike.ranks, alike.steps) == (list(range(8)), [4, 5])
