"""Committed steps are few bytes on disk, and come back as they were, to the bit."""

import math
import struct
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmover.errors import StateMismatch, UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.journal import Journal
from trainmover.journal.packed import BLOCK, packed, unpacked
from trainmover.protocol.messages import Committed, JobSpec, Row, columns_of, named, plain

VALUES = st.dictionaries(st.sampled_from(["loss", "norm", ""]), st.floats(), max_size=3)
TIMES = st.integers(-(2**62), 2**62)
ROWS = st.tuples(st.integers(1, 3).map(Epoch), TIMES, VALUES.map(plain))
RANKS = 150
SPEC = JobSpec(run_id="r", argv=["train.py"], machines=RANKS, exact=True)


def row(step: int, loss: float, at_us: int = 0) -> Row:
    return Row(step=Step(step), at_us=at_us, values={"loss": loss})


def told_of(rank: int, row: Row) -> Committed:
    return Committed(rank=Rank(rank), epoch=Epoch(1), rows=[row])


def float32(value: float) -> float:
    number: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return number


@given(st.dictionaries(st.integers(0, BLOCK - 1), ROWS))
def test_a_block_comes_back_as_it_was(block: dict[int, tuple[Epoch, int, object]]) -> None:
    assert unpacked(packed(block)) == block  # type: ignore[arg-type]


@given(st.floats())
def test_values_are_equal_if_and_only_if_the_bits_are(value: float) -> None:
    back = named(plain({"v": value}))["v"]
    assert struct.pack("d", back) == struct.pack("d", value) or (back != back and value != value)


def test_numbers_of_float32_take_half() -> None:
    exact = packed({at: (Epoch(1), 7, plain({"loss": at / 7})) for at in range(BLOCK)})
    short = packed({at: (Epoch(1), 7, plain({"loss": float32(at / 7)})) for at in range(BLOCK)})
    assert len(exact) - len(short) == 4 * BLOCK
    assert len(exact) < BLOCK * 8 + 40


def test_no_number_is_too_large() -> None:
    block = {at: (Epoch(1), 7, plain({"loss": loss})) for at, loss in enumerate((1e300, math.inf))}
    assert unpacked(packed(block)) == block


@pytest.mark.parametrize("at", [0, 3, 5, -1])
def test_a_changed_bit_is_seen(at: int, tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j", SPEC) as journal:
        journal.append_rows(Rank(0), Epoch(1), [row(1, 0.5)])
        ((data,),) = journal._db.execute("SELECT data FROM rows")
        spoilt = bytearray(data)
        spoilt[at] ^= 1
        journal._db.execute("UPDATE rows SET data = ?", (bytes(spoilt),))
        with pytest.raises(UserError, match="damaged"):
            list(journal.rows())


def test_ranks_that_tell_late_and_by_pieces_are_all_there(tmp_path: Path) -> None:
    """Each flush has what has come by then: some ranks, some steps."""
    chance = Random(7)
    losses = {(rank, step): chance.random() for rank in range(RANKS) for step in range(1, 6)}
    told = sorted(losses, key=lambda place: (place[1] + chance.randrange(3), chance.random()))
    with Journal.create(tmp_path / "j", SPEC) as journal:
        while told:
            some, told = told[:40], told[40:]
            journal.append_batches(columns_of(told_of(r, row(s, losses[r, s])) for r, s in some))
        assert {(r.rank, r.step): r.values["loss"] for r in journal.rows()} == losses
        assert [(r.rank, r.step) for r in journal.rows()] == sorted(losses)
        newest = [(r.rank, r.step) for r in journal.newest_rows(2)]
        assert newest == [(rank, step) for rank in range(RANKS) for step in (4, 5)]
        some = [(r.rank, r.step) for r in journal.rows_between([3, 140], Step(2), Step(3))]
        assert some == [(3, 2), (3, 3), (140, 2), (140, 3)]
        assert [step for step, _ in journal.commits()] == [1, 2, 3, 4, 5]
        assert journal.committed(Step(2), Step(4)) == 3
        with pytest.raises(StateMismatch, match="Rank 149 committed step 2 twice"):
            journal.append_rows(Rank(149), Epoch(1), [row(2, 9.0)])


def test_when_the_lowest_rank_committed_is_when_a_step_was(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j", SPEC) as journal:
        for rank in (131, 70):
            steps = [row(step, 0.5, at_us=1000 * rank + step) for step in (1, 2**42)]
            journal.append_rows(Rank(rank), Epoch(1), steps)
        assert list(journal.commits()) == [(1, 70_001), (2**42, 70_000 + 2**42)]


def test_a_thousand_ranks_take_little(tmp_path: Path) -> None:
    """Measured by the hour in `bench.control`."""
    chance = Random(7)
    with Journal.create(tmp_path / "j", SPEC) as journal:
        (before,) = journal._db.execute("PRAGMA page_count").fetchone()
        for step in range(1, 101):
            at_us = step * 1_000_000
            rows = [
                row(step, chance.random(), at_us + chance.randrange(60_000)) for _ in range(RANKS)
            ]
            told = [told_of(rank, one) for rank, one in enumerate(rows)]
            journal.append_batches(columns_of(told[::2]))
            journal.append_batches(columns_of(told[1::2]))
        (after,) = journal._db.execute("PRAGMA page_count").fetchone()
        assert (after - before) * 4096 < RANKS * 100 * 14
