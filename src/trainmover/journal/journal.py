"""The journal: one SQLite file per job, written by the server, read by anybody at any time.

    meta    key, value                                     the spec, version of the writer
    events  seq, at_us, kind, json                         what `decide` was given, in order
    rows    rank, step, epoch, at_us, values_json          every committed step, once

An event is written before its effects leave, so a replay of `events` gives the controller's state.
Rows are kept beside the events: they are many, and no decision depends on them. A note is an entry
of `events` for human eyes (a refused connection); a replay skips it.

WAL with synchronous=NORMAL: a killed process loses nothing, a power cut at most the last moments.
Checkpoints are the caller's (`checkpoint`), so that none falls into an incident.
"""

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from trainmover.controller.events import EVENTS
from trainmover.errors import StateMismatch, UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import JobSpec, Row
from trainmover.version import VERSION

FORMAT = "trainmover journal 1"
NOTE = "Note"
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (seq INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, kind TEXT NOT NULL,
                     json TEXT NOT NULL);
CREATE TABLE rows (rank INTEGER NOT NULL, step INTEGER NOT NULL, epoch INTEGER NOT NULL,
                   at_us INTEGER NOT NULL, values_json TEXT NOT NULL,
                   PRIMARY KEY (rank, step)) WITHOUT ROWID;
"""
_NO_VALUES = "{}"
_INSERT_ROW = f"""
INSERT INTO rows VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET epoch = excluded.epoch,
  at_us = excluded.at_us, values_json = excluded.values_json WHERE values_json = '{_NO_VALUES}'
"""
_encoder = msgspec.json.Encoder()
_decoder: "msgspec.json.Decoder[Any]" = msgspec.json.Decoder(EVENTS)

Batch = tuple[Rank, Epoch, list[Row]]
"""Steps one rank has committed in one epoch."""


@dataclass(frozen=True)
class Entry:
    """One line of `events`. `text` is set for a note, `event` for everything else."""

    seq: int
    at_us: int
    kind: str
    event: EVENTS | None
    text: str = ""


@dataclass(frozen=True)
class CommittedRow:
    """One step of one rank. Floats are bit exact."""

    rank: Rank
    step: Step
    epoch: Epoch
    at_us: int
    values: dict[str, float]


class Journal:
    """Use `create` or `open`."""

    def __init__(self, connection: sqlite3.Connection, path: Path, spec: JobSpec) -> None:
        self._db = connection
        self.path = path
        self.spec = spec

    @classmethod
    def create(cls, path: str | Path, spec: JobSpec) -> "Journal":
        """A new journal. Raises UserError if the file exists or cannot be made."""
        path = Path(path)
        if path.exists():
            raise UserError(
                f"{path} exists already.",
                means="A journal is never overwritten; nothing was started.",
                do="Give --journal another path, or remove that file.",
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute("PRAGMA wal_autocheckpoint=0")
            db.executescript("BEGIN;" + _SCHEMA + "COMMIT;")
        except (OSError, sqlite3.Error) as error:
            raise UserError(
                f"The journal {path} could not be made: {error}.",
                means="Nothing was started.",
                do="Give --journal a path in a directory that exists and can be written.",
            ) from error
        meta = {
            "format": FORMAT,
            "version": VERSION,
            "spec": _encoder.encode(spec).decode(),
        }
        db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        return cls(db, path, spec)

    @classmethod
    def open(cls, path: str | Path) -> "Journal":
        """An existing journal, read only. Raises UserError if `path` is none or is damaged."""
        path = Path(path)
        if not path.is_file():
            raise UserError(
                f"There is no journal at {path}.",
                means="Nothing was read.",
                do="Give the path that the run was started with (--journal).",
            )
        with _readable(path):
            db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
            try:
                if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                    raise sqlite3.DatabaseError("the file is damaged")
                meta = dict(db.execute("SELECT key, value FROM meta"))
                if meta.get("format") != FORMAT:
                    raise sqlite3.DatabaseError("it has another format")
                spec = msgspec.json.decode(meta["spec"], type=JobSpec)
            except BaseException:
                db.close()
                raise
        return cls(db, path, spec)

    def append(self, event: EVENTS) -> int:
        """Write one event; its sequence number, from 1. Durable against our own death on return."""
        return self._insert(event.at_us, type(event).__name__, _encoder.encode(event).decode())

    def note(self, at_us: int, text: str) -> int:
        """Write a line for human eyes."""
        return self._insert(at_us, NOTE, json.dumps(text))

    def append_rows(self, rank: Rank, epoch: Epoch, rows: list[Row]) -> None:
        """Write committed steps of one rank; see `append_batches`."""
        self.append_batches([(rank, epoch, rows)])

    def append_batches(self, batches: Iterable[Batch]) -> None:
        """Write committed steps in one transaction. Repeated equal rows are no news.

        A row without values yields to one with: a rank that died between its gate and its return
        had nothing reported yet, and its joiner cannot know what the function would have returned.

        Raises StateMismatch, and writes nothing, if a step is there already with other values:
        two truths for one committed step.
        """
        records = [
            (rank, row.step, epoch, row.at_us, _values_json(row.values))
            for rank, epoch, rows in batches
            for row in rows
        ]
        if not records:
            return
        before = self._db.total_changes
        self._db.execute("BEGIN")
        try:
            self._db.executemany(_INSERT_ROW, records)
            if self._db.total_changes - before < len(records):
                self._check_repeated(records)
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def events(self, after: int = 0) -> Iterator[tuple[int, EVENTS]]:
        """Events with a sequence number above `after`, in order."""
        return ((e.seq, e.event) for e in self.entries(after) if e.event is not None)

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Events and notes above `after`, in order. Raises UserError on a damaged line."""
        query = "SELECT seq, at_us, kind, json FROM events WHERE seq > ? ORDER BY seq"
        with _readable(self.path):
            for seq, at_us, kind, text in self._db.execute(query, (after,)):
                if kind == NOTE:
                    yield Entry(seq, at_us, kind, None, json.loads(text))
                else:
                    yield Entry(seq, at_us, kind, _decoder.decode(text))

    def rows(self) -> Iterator[CommittedRow]:
        """Committed steps, by rank and step."""
        query = "SELECT rank, step, epoch, at_us, values_json FROM rows ORDER BY rank, step"
        with _readable(self.path):
            for rank, step, epoch, at_us, text in self._db.execute(query):
                yield CommittedRow(rank, step, epoch, at_us, json.loads(text))

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file; may wait for the disk."""
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _insert(self, at_us: int, kind: str, text: str) -> int:
        cursor = self._db.execute(
            "INSERT INTO events (at_us, kind, json) VALUES (?, ?, ?)", (at_us, kind, text)
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def _check_repeated(self, records: list[tuple[Rank, Step, Epoch, int, str]]) -> None:
        query = "SELECT epoch, values_json FROM rows WHERE rank = ? AND step = ?"
        for rank, step, epoch, _, text in records:
            epoch_before, text_before = self._db.execute(query, (rank, step)).fetchone()
            if text not in (text_before, _NO_VALUES):
                raise StateMismatch(
                    f"Rank {rank} committed step {step} twice with other values: {text_before} "
                    f"in epoch {epoch_before}, {text} in epoch {epoch}.",
                    means="One of the two is wrong, so the job must not go on.",
                    do="Is the step deterministic? If so, report this: trainmover is at fault.",
                )


def _values_json(values: dict[str, float]) -> str:
    """Equal text if and only if equal bits (but for the payload of a NaN): repr round-trips."""
    return json.dumps({name: _plain(value) for name, value in sorted(values.items())})


def _plain(value: float) -> float:
    return math.nan if value != value else value


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns whatever a damaged or alien file provokes into a UserError."""
    try:
        yield
    except (sqlite3.Error, msgspec.MsgspecError, ValueError, KeyError) as error:
        raise UserError(
            f"{path} is not a journal that can be read: {error}.",
            means="Nothing was changed.",
            do="Give the journal of a run of this version of trainmover.",
        ) from error
