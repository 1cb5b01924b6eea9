"""Committed steps in a journal: each once. One that comes again must be the same, to the bit."""

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence

from trainmover.errors import StateMismatch
from trainmover.ids import Epoch, Rank, Step
from trainmover.journal import samples
from trainmover.protocol.messages import Row

SCHEMA = """\
CREATE TABLE rows (rank INTEGER NOT NULL, step INTEGER NOT NULL, epoch INTEGER NOT NULL,
                   at_us INTEGER NOT NULL, values_json TEXT NOT NULL,
                   PRIMARY KEY (step, rank)) WITHOUT ROWID;
CREATE TABLE safe (incarnation TEXT PRIMARY KEY, facts INTEGER NOT NULL) WITHOUT ROWID;
"""
_NO_VALUES = "{}"
_INSERT = f"""
INSERT INTO rows VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET epoch = excluded.epoch,
  at_us = excluded.at_us, values_json = excluded.values_json WHERE values_json = '{_NO_VALUES}'
"""
_SELECT = "SELECT epoch, values_json FROM rows WHERE rank = ? AND step = ?"

STEPS = """\
WITH RECURSIVE steps(step) AS (
  SELECT min(step) FROM rows WHERE step >= ?
  UNION ALL SELECT (SELECT min(rows.step) FROM rows WHERE rows.step > steps.step) FROM steps
    WHERE steps.step IS NOT NULL)
SELECT rows.step, rows.at_us FROM steps JOIN rows ON rows.step = steps.step
  AND rows.rank = (SELECT rank FROM rows ORDER BY step, rank LIMIT 1)
  WHERE rows.step <= ? ORDER BY rows.step"""
"""Those from one to another, and when the first of the ranks has committed each; it looks at no row
of another rank. All ranks commit a step together, so what is written lies together by step."""

Batch = tuple[Rank, Epoch, list[Row]]
"""Steps one rank has committed in one epoch."""
Record = tuple[Rank, Step, Epoch, int, str]
Texts = dict[tuple[Rank, Step], tuple[Epoch, str]]
"""Of rows that are not in the journal yet: epoch and values."""


def write(db: sqlite3.Connection, batches: Sequence[Batch], safe: Mapping[str, int]) -> None:
    """In the caller's transaction. Raises StateMismatch."""
    records = list(_records(batches))
    before = db.total_changes
    db.executemany(_INSERT, records)
    if db.total_changes - before < len(records):
        for record in records:
            _check(record, db.execute(_SELECT, record[:2]).fetchone())
    for rank, _, rows in batches:
        samples.write(db, rank, rows)
    if safe:
        db.executemany("INSERT OR REPLACE INTO safe VALUES (?, ?)", safe.items())


def add(texts: Texts, db: sqlite3.Connection, batches: Sequence[Batch]) -> None:
    """The same check, of rows that cannot be written now. Raises StateMismatch."""
    for record in _records(batches):
        rank, step, epoch, _, text = record
        place = rank, step
        there = texts.get(place) or db.execute(_SELECT, place).fetchone()
        if there is not None and there[1] != _NO_VALUES:
            _check(record, there)
        else:
            texts[place] = epoch, text


def _records(batches: Sequence[Batch]) -> Iterator[Record]:
    for rank, epoch, rows in batches:
        for row in rows:
            yield rank, row.step, epoch, row.at_us, values_json(row.values)


def _check(record: Record, there: tuple[Epoch, str]) -> None:
    rank, step, epoch, _, text = record
    epoch_before, text_before = there
    if text not in (text_before, _NO_VALUES):
        raise StateMismatch(
            f"Rank {rank} committed step {step} twice with other values: {text_before} "
            f"in epoch {epoch_before}, {text} in epoch {epoch}.",
            means="One of the two is wrong, so the job must not go on.",
            do="Is the step deterministic? If so, report this: trainmover is at fault.",
        )


def values_json(values: dict[str, float]) -> str:
    """Equal text if and only if equal bits (but for the payload of a NaN): repr round-trips."""
    return json.dumps({name: _plain(value) for name, value in sorted(values.items())})


def _plain(value: float) -> float:
    return math.nan if value != value else value
