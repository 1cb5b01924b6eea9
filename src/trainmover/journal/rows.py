# SPDX-License-Identifier: Apache-2.0
"""Committed steps in a journal: each once. One that comes again must be the same, to the bit.

All ranks commit a step together, so what is written lies together by step: blocks of neighbouring
ranks (`packed.py`), each written once more when further ranks of it have told the same step.
"""

import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from trainmover.errors import StateMismatch
from trainmover.ids import Epoch, Rank, Step
from trainmover.journal import samples
from trainmover.journal.packed import (
    BLOCK,
    NO_VALUES,
    Block,
    Kept,
    first_rank_at,
    packed,
    place_of,
    step_at,
    unpacked,
)
from trainmover.protocol.messages import Columns, named

SCHEMA = """\
CREATE TABLE rows (place INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE safe (incarnation TEXT PRIMARY KEY, facts INTEGER NOT NULL) WITHOUT ROWID;
"""
_SELECT = "SELECT data FROM rows WHERE place = ?"
_INSERT = "INSERT OR REPLACE INTO rows VALUES (?, ?)"
_BETWEEN = "SELECT place, data FROM rows WHERE place BETWEEN ? AND ? ORDER BY place"
_STEP = place_of(Step(1), Rank(0))
_OF_BLOCK = f"""\
WITH RECURSIVE steps(place) AS (
  SELECT min(place) FROM rows WHERE place >= :first
  UNION ALL SELECT (SELECT min(rows.place) FROM rows
                    WHERE rows.place >= (steps.place / {_STEP} + 1) * {_STEP}) FROM steps
    WHERE steps.place IS NOT NULL)
SELECT rows.place, rows.data FROM steps JOIN rows
  ON rows.place = steps.place / {_STEP} * {_STEP} + :block
  WHERE rows.place <= :last ORDER BY rows.place"""
"""One block of each step; it looks at no other."""
_LAST = 2**63 - 1

Blocks = dict[int, Block]
"""By their places."""


@dataclass(frozen=True)
class CommittedRow:
    """One step of one rank. Floats are bit exact."""

    rank: Rank
    step: Step
    epoch: Epoch
    at_us: int
    values: dict[str, float]


def write(db: sqlite3.Connection, batches: Sequence[Columns], safe: Mapping[str, int]) -> None:
    """In the caller's transaction. Raises StateMismatch."""
    blocks: Blocks = {}
    news = _enter_all(blocks, db, batches)
    db.executemany(_INSERT, ((place, packed(blocks[place])) for place in sorted(news)))
    for batch in batches:
        if batch.samples:
            samples.write(db, batch)
    if safe:
        db.executemany("INSERT OR REPLACE INTO safe VALUES (?, ?)", safe.items())


def add(blocks: Blocks, db: sqlite3.Connection, batches: Sequence[Columns]) -> None:
    """The same check, of rows that cannot be written now: they are kept in `blocks`, with all that
    is beside them. Raises StateMismatch."""
    _enter_all(blocks, db, batches)


def _enter_all(blocks: Blocks, db: sqlite3.Connection, batches: Sequence[Columns]) -> set[int]:
    """Which blocks are others than in the journal."""
    news = set()
    for batch in batches:
        for number, (rank, step) in enumerate(product(batch.ranks, batch.steps)):
            place = place_of(step, rank)
            block = blocks.get(place)
            if block is None:
                found = db.execute(_SELECT, (place,)).fetchone()
                block = blocks[place] = {} if found is None else unpacked(found[0])
            values = batch.names, batch.values_of(number)
            if _enter(block, rank, step, (batch.epoch, batch.at_us[number], values)):
                news.add(place)
    return news


def _enter(block: Block, rank: Rank, step: Step, row: Kept) -> bool:
    """Whether it is news. A row without values yields to one with."""
    there = block.get(rank % BLOCK)
    if there is None or (there[2] == NO_VALUES != row[2]):
        block[rank % BLOCK] = row
        return True
    if row[2] not in (there[2], NO_VALUES):
        raise _two_truths(rank, step, there, row)
    return False


def _two_truths(rank: Rank, step: Step, there: Kept, row: Kept) -> StateMismatch:
    return StateMismatch(
        f"Rank {rank} committed step {step} twice with other values: {named(there[2])} "
        f"in epoch {there[0]}, {named(row[2])} in epoch {row[0]}.",
        means="One of the two is wrong, so the job must not go on.",
        do="Is the step deterministic, and does it rely on nothing that is not compared "
        "(docs/limits.md has a list)? If so, report this: trainmover is at fault.",
    )


def read(db: sqlite3.Connection) -> Iterator[CommittedRow]:
    """All, by rank and step."""
    firsts = sorted({first_rank_at(place) for (place,) in db.execute("SELECT place FROM rows")})
    for first in firsts:
        places = db.execute(_OF_BLOCK, {"first": 0, "last": _LAST, "block": first // BLOCK})
        yield from sorted(_rows(places), key=_by_rank)


def between(
    db: sqlite3.Connection, ranks: Iterable[int], first: Step, last: Step | None
) -> Iterator[CommittedRow]:
    """Those of these ranks, by rank and step. last: None for the newest."""
    wanted = set(ranks)
    blocks = {rank // BLOCK for rank in wanted}
    limits = (place_of(first, Rank(0)), _end_of(last))
    places = (
        (place, data)
        for place, data in db.execute(_BETWEEN, limits)
        if first_rank_at(place) // BLOCK in blocks
    )
    yield from sorted((row for row in _rows(places) if row.rank in wanted), key=_by_rank)


def newest_first(db: sqlite3.Connection) -> Iterator[CommittedRow]:
    """From the last step back."""
    return _rows(db.execute("SELECT place, data FROM rows ORDER BY place DESC"))


def commits(db: sqlite3.Connection, first: Step, last: Step | None) -> Iterator[tuple[Step, int]]:
    """When the lowest rank that has any has committed each step from one to another, in order: no
    block of other ranks is looked at."""
    found = db.execute("SELECT place, data FROM rows ORDER BY place LIMIT 1").fetchone()
    if found is None:
        return
    rank = min(row.rank for row in _rows([found]))
    limits = {"first": place_of(first, Rank(0)), "last": _end_of(last), "block": rank // BLOCK}
    for row in _rows(db.execute(_OF_BLOCK, limits)):
        if row.rank == rank:
            yield row.step, row.at_us


def _end_of(step: Step | None) -> int:
    return _LAST if step is None else place_of(Step(step + 1), Rank(0)) - 1


def _rows(places: Iterable[tuple[int, bytes]]) -> Iterator[CommittedRow]:
    for place, data in places:
        step, first = step_at(place), first_rank_at(place)
        for at, (epoch, at_us, values) in unpacked(data).items():
            yield CommittedRow(Rank(first + at), step, epoch, at_us, named(values))


def _by_rank(row: CommittedRow) -> tuple[Rank, Step]:
    return row.rank, row.step


def numbers(row: CommittedRow) -> dict[str, float | str]:
    """Return what a step has reported; what JSON has no number for is a text: "nan", "inf"."""
    return {
        name: value if math.isfinite(value) else repr(value) for name, value in row.values.items()
    }
