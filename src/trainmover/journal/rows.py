# SPDX-License-Identifier: Apache-2.0
"""Committed steps in a journal: each once. One that comes again should be the same, to the bit: one
that is not is told the caller, and kept instead of the first, since the job goes on from it.

All ranks commit a step together, so what is written lies together by step: blocks of neighbouring
ranks (`packed.py`), each written once more when further ranks of it have told the same step.
"""

import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

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


@dataclass(frozen=True)
class Unequal:
    """Step that was committed twice with other values, or samples. text: both, for people"""

    rank: Rank
    step: Step
    text: str


Differ = Callable[[Unequal], None]
"""Called with each; it may raise."""


def write(
    db: sqlite3.Connection, batches: Sequence[Columns], safe: Mapping[str, int], differ: Differ
) -> None:
    """Write in the caller's transaction. Raises what `differ` raises."""
    blocks: Blocks = {}
    news = _enter_all(blocks, db, batches, differ)
    db.executemany(_INSERT, ((place, packed(blocks[place])) for place in sorted(news)))
    for batch in batches:
        if batch.samples:
            for rank, step, text in samples.write(db, batch):
                differ(Unequal(rank, step, text))
    if safe:
        db.executemany("INSERT OR REPLACE INTO safe VALUES (?, ?)", safe.items())


def add(blocks: Blocks, db: sqlite3.Connection, batches: Sequence[Columns], differ: Differ) -> None:
    """The same check, of rows that cannot be written now: they are kept in `blocks`, with all that
    is beside them. Raises what `differ` raises."""
    _enter_all(blocks, db, batches, differ)


def _enter_all(
    blocks: Blocks, db: sqlite3.Connection, batches: Sequence[Columns], differ: Differ
) -> set[int]:
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
            row = batch.epoch, batch.at_us[number], values
            if there := _enter(block, rank, row):
                news.add(place)
                if there[2] != NO_VALUES:
                    differ(Unequal(rank, step, _both(there, row)))
    return news


_NONE: Kept = (Epoch(0), 0, NO_VALUES)
"""Stands for a row that is not there."""


def _enter(block: Block, rank: Rank, row: Kept) -> Kept | None:
    """Keep a row if it is news; returns the one that it replaces. A row without values yields."""
    there = block.get(rank % BLOCK)
    if there is not None and row[2] in (there[2], NO_VALUES):
        return None
    block[rank % BLOCK] = row
    return there or _NONE


def _both(there: Kept, row: Kept) -> str:
    then, now = named(there[2]), named(row[2])
    return f"{then} in epoch {there[0]}, {now} in epoch {row[0]}"


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
