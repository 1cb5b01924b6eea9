"""The journal: one SQLite file per job, written by the server, read by anybody at any time.

    meta    key, value                                     the spec, version of the writer
    events  seq, at_us, kind, json, crc                    what `decide` was given, in order
    rows    rank, step, epoch, at_us, values_json          every committed step, once
    samples rank, step, draws_json                         what it used, where a script tells
    safe    incarnation, facts                             how many of an agent's facts are here
    bookmarks  seq, code, state, told, digest              what was known after an event

An event is written before its effects leave, so a replay of `events` gives the controller's state.
Rows are kept beside the events: they are many, and no decision depends on them. A note is an entry
of `events` for human eyes (a refused connection); a replay skips it.

WAL with synchronous=NORMAL: a killed process loses nothing, a power cut at most the last moments.
Checkpoints are the caller's (`checkpoint`), so that none falls into an incident. One process
writes, and holds a lock for it; when it has died another may `take_over`.
"""

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from trainmover.controller.events import EVENTS
from trainmover.errors import JobFailed, StateMismatch, UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.journal import bookmarks, samples
from trainmover.journal.bookmarks import Bookmark
from trainmover.journal.damage import check_of, torn_records, torn_writes
from trainmover.journal.file import (
    check_code,
    check_there,
    fill,
    note_boot,
    only_readable,
    readable,
    spec_of,
    was_started_again,
    writable,
)
from trainmover.journal.lock import WriterLock
from trainmover.protocol.messages import JobSpec, Row

NOTE = "Note"
_NO_VALUES = "{}"
_LAST = 2**63 - 1
_INSERT_ROW = f"""
INSERT INTO rows VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET epoch = excluded.epoch,
  at_us = excluded.at_us, values_json = excluded.values_json WHERE values_json = '{_NO_VALUES}'
"""
_encoder = msgspec.json.Encoder()
_decoder: "msgspec.json.Decoder[Any]" = msgspec.json.Decoder(EVENTS)

T = TypeVar("T")
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
    """Use `create`, `take_over` or `open`.

    cut  what a crash had torn and `take_over` removed, or may have, for human eyes; "" if nothing
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        spec: JobSpec,
        *,
        lock: WriterLock | None = None,
        cut: str = "",
    ) -> None:
        self._db = connection
        self._lock = lock
        self.path = path
        self.spec = spec
        self.cut = cut
        self._seq: int
        (self._seq,) = connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()

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
        with ExitStack() as undo:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                lock = WriterLock.take(path)
                undo.callback(lock.release)
                path.touch(0o600)
                db = writable(path)
                fill(db, spec)
            except (OSError, sqlite3.Error) as error:
                raise UserError(
                    f"The journal {path} could not be made: {error}.",
                    means="Nothing was started.",
                    do="Give --journal a path in a directory that exists and can be written.",
                ) from error
            undo.pop_all()
        return cls(db, path, spec, lock=lock)

    @classmethod
    def take_over(cls, path: str | Path) -> "Journal":
        """An existing journal, to be written on by the successor of who wrote it.

        What a crash has torn off its end is cut: see `cut`. Raises UserError if another process
        writes it still, if other code than this has written it, if it is damaged anywhere else, or
        if `path` is none; then nothing has changed.
        """
        path = Path(path)
        check_there(path)
        with ExitStack() as undo, readable(path):
            lock = WriterLock.take(path)
            undo.callback(lock.release)
            with closing(only_readable(path)) as reader:
                spec = spec_of(reader)
                check_code(reader, path)
                started_again = was_started_again(reader)
                half_written = torn_writes(path, reader)
                torn = torn_records(reader)
            db = writable(path)
            undo.callback(db.close)
            if torn:
                db.execute("DELETE FROM events WHERE seq >= ?", (torn[0],))
                db.execute("DELETE FROM bookmarks WHERE seq >= ?", (torn[0],))
            note_boot(db)
            if torn or half_written:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            undo.pop_all()
        return cls(db, path, spec, lock=lock, cut=_cut_text(torn, half_written, started_again))

    @classmethod
    def open(cls, path: str | Path) -> "Journal":
        """An existing journal, read only. Raises UserError if `path` is none or is damaged."""
        path = Path(path)
        check_there(path)
        with readable(path), ExitStack() as undo:
            db = only_readable(path)
            undo.callback(db.close)
            if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("the file is damaged")
            journal = cls(db, path, spec_of(db))
            undo.pop_all()
        return journal

    @property
    def seq(self) -> int:
        """Of the newest entry; 0 before any."""
        return self._seq

    def append(self, event: EVENTS) -> int:
        """Write one event; its sequence number, from 1. Durable against our own death on return."""
        return self._insert(event.at_us, type(event).__name__, _encoder.encode(event).decode())

    def note(self, at_us: int, text: str) -> int:
        """Write a line for human eyes."""
        return self._insert(at_us, NOTE, json.dumps(text))

    def append_rows(self, rank: Rank, epoch: Epoch, rows: list[Row]) -> None:
        """Write committed steps of one rank; see `append_batches`."""
        self.append_batches([(rank, epoch, rows)])

    def append_batches(
        self, batches: Sequence[Batch], safe: Mapping[str, int] | None = None
    ) -> None:
        """Write committed steps in one transaction. Repeated equal rows are no news.

        safe  incarnation -> number of its facts that are in the journal once this is: see `safe`

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
        if not records and not safe:
            return
        with self._writing():
            before = self._db.total_changes
            self._db.executemany(_INSERT_ROW, records)
            if self._db.total_changes - before < len(records):
                self._check_repeated(records)
            for rank, _, rows in batches:
                samples.write(self._db, rank, rows)
            if safe:
                self._db.executemany("INSERT OR REPLACE INTO safe VALUES (?, ?)", safe.items())

    def events(self, after: int = 0) -> Iterator[tuple[int, EVENTS]]:
        """Events with a sequence number above `after`, in order."""
        return ((e.seq, e.event) for e in self.entries(after) if e.event is not None)

    def events_of(self, kind: type[T]) -> Iterator[T]:
        """Events of one kind, in order; the others are not even decoded."""
        query = "SELECT json FROM events WHERE kind = ? ORDER BY seq"
        with readable(self.path):
            for (text,) in self._db.execute(query, (kind.__name__,)):
                yield msgspec.json.decode(text, type=kind)

    def entries(self, after: int = 0, until: int = _LAST) -> Iterator[Entry]:
        """Events and notes above `after`, up to `until`, in order. Raises UserError on a damaged
        line."""
        query = "SELECT * FROM events WHERE seq > ? AND seq <= ? ORDER BY seq"
        with readable(self.path):
            for seq, at_us, kind, text, check in self._db.execute(query, (after, until)):
                if check != check_of(seq, at_us, kind, text):
                    raise ValueError(f"record {seq} is damaged")
                if kind == NOTE:
                    yield Entry(seq, at_us, kind, None, json.loads(text))
                else:
                    yield Entry(seq, at_us, kind, _decoder.decode(text))

    def rows(self) -> Iterator[CommittedRow]:
        """Committed steps, by rank and step."""
        query = "SELECT rank, step, epoch, at_us, values_json FROM rows ORDER BY rank, step"
        with readable(self.path):
            for rank, step, epoch, at_us, text in self._db.execute(query):
                yield CommittedRow(rank, step, epoch, at_us, json.loads(text))

    def newest_rows(self, count: int) -> Iterator[CommittedRow]:
        """Of every rank the last `count` steps, by rank and step."""
        with readable(self.path):
            query = "SELECT * FROM rows WHERE rank = ? ORDER BY step DESC LIMIT ?"
            for rank in range(self.spec.world_size):
                newest = self._db.execute(query, (rank, count)).fetchall()
                for _, step, epoch, at_us, text in reversed(newest):
                    yield CommittedRow(Rank(rank), step, epoch, at_us, json.loads(text))

    def safe(self) -> dict[str, int]:
        """Incarnation of an agent -> how many of its facts it was told are safe, at least."""
        with readable(self.path):
            return dict(self._db.execute("SELECT incarnation, facts FROM safe"))

    def keep_bookmark(self, mark: Bookmark) -> None:
        """Write what was known after its event; the state of older ones goes."""
        with self._writing():
            bookmarks.write(self._db, mark)

    def bookmarks(self) -> tuple[list[Bookmark], str]:
        """Those that can be believed, and which is the first that cannot; see `bookmarks.read`."""
        with readable(self.path):
            return bookmarks.read(self._db)

    def drop_bookmarks(self, after: int) -> None:
        """Those behind later events than `after`."""
        with self._writing():
            self._db.execute("DELETE FROM bookmarks WHERE seq > ?", (after,))

    def used(self) -> Iterator[samples.Used]:
        """What committed steps used, by step and rank."""
        with readable(self.path):
            yield from samples.read(self._db)

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file; may wait for the disk."""
        with self._unwritable():
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        self._db.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

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
        seq = self._seq + 1
        with self._unwritable():
            self._db.execute(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
                (seq, at_us, kind, text, check_of(seq, at_us, kind, text)),
            )
        self._seq = seq
        return seq

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction: all of it, or nothing."""
        with self._unwritable():
            self._db.execute("BEGIN")
            try:
                yield
            except BaseException:
                if self._db.in_transaction:  # A full disk ends it by itself.
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def _unwritable(self) -> Iterator[None]:
        """Turns what a disk provokes into a JobFailed."""
        try:
            yield
        except sqlite3.Error as error:
            if self._lock is None:
                raise
            raise JobFailed(
                f"The journal {self.path} could not be written: {error}.",
                means="The job has ended: nothing must happen that is not in its journal.",
                do="Make room there, then start again from the newest checkpoint (--resume).",
            ) from error

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


def _cut_text(torn: list[int], half_written: int, started_again: bool) -> str:
    if torn:
        return f"its last {len(torn)} records, from number {torn[0]}, were damaged and are cut off"
    if half_written:
        return "its last write was not finished and is cut off"
    if started_again:
        return "the host has been started again, and its newest records may be lost with that"
    return ""


def _values_json(values: dict[str, float]) -> str:
    """Equal text if and only if equal bits (but for the payload of a NaN): repr round-trips."""
    return json.dumps({name: _plain(value) for name, value in sorted(values.items())})


def _plain(value: float) -> float:
    return math.nan if value != value else value
