# SPDX-License-Identifier: Apache-2.0
"""The journal: one SQLite file per job, written by the server, read by anybody at any time.

    meta    key, value                                     the spec, version of the writer
    events  seq, at_us, kind, json, crc                    what `decide` was given, in order
    rows    place, data                                    every committed step, once, packed
    samples rank, step, draws_json                         what it used, where a script tells
    safe    incarnation, facts                             how many of an agent's facts are here
    bookmarks  seq, code, state, told, digest              what was known after an event

An event is written before its effects leave, so a replay of `events` gives the controller's state.
Rows are kept beside the events: they are many, and no decision depends on them. A note is an entry
of `events` for human eyes (a refused connection); a replay skips it.

WAL with synchronous=NORMAL: a killed process loses nothing, a power cut at most the last moments.
Checkpoints are the caller's (`checkpoint`), so that none falls into an incident. One process
writes, and holds a lock for it; when it has died another may `take_over`.

What a full disk does not take is kept in memory that a successor finds (`memory.py`), and written
as soon as it can be (`write_again`). Whoever reads the file meanwhile sees it end earlier.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from trainmover import ownership
from trainmover.controller.events import EVENTS
from trainmover.errors import JobFailed, StateMismatch, UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.journal import bookmarks, rows, samples
from trainmover.journal.bookmarks import Bookmark
from trainmover.journal.damage import check_of, cut_torn_writes, torn_records
from trainmover.journal.file import (
    LOGS,
    NOTE,
    check_code,
    check_there,
    fill,
    launched_of,
    may_pass,
    note_boot,
    note_cut,
    only_readable,
    readable,
    spec_of,
    untold_cut,
    was_started_again,
    writable,
)
from trainmover.journal.lock import WriterLock
from trainmover.journal.memory import Cut, Line, Memory, Record, Steps
from trainmover.journal.rows import Blocks, CommittedRow, Unequal
from trainmover.protocol.messages import Columns, Committed, JobSpec, Row, columns_of

_LAST = 2**63 - 1
AT_ONCE = 1000
_encoder = msgspec.json.Encoder()
_decoder: "msgspec.json.Decoder[Any]" = msgspec.json.Decoder(EVENTS)

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """One line of `events`. `text` is set for a note, `event` for everything else."""

    seq: int
    at_us: int
    kind: str
    event: EVENTS | None
    text: str = ""


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
        memory: Memory | None = None,
    ) -> None:
        self._db = connection
        self._lock = lock
        self._memory = memory
        self._why = ""
        self._blocks: Blocks = {}
        self._unequal: list[Unequal] = []
        self.path = path
        self.spec = spec
        self.cut = ""
        self._seq: int
        (self._seq,) = connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()

    @classmethod
    def create(cls, path: str | Path, spec: JobSpec, *, launched_us: int = 0) -> "Journal":
        """A new journal. Raises UserError if the file exists or cannot be made.

        launched_us  when the command was given, by the host's clock; 0: that is not known
        """
        path = Path(path)
        if os.path.lexists(path):
            raise UserError(
                f"{path} exists already.",
                means="A journal is never overwritten; nothing was started.",
                do="Give --journal another path; with --checkpoint DIR --resume auto this one "
                "would be kept beside the new one.",
            )
        made = [folder for folder in path.parents if not os.path.lexists(folder)]
        with ExitStack() as undo:
            undo.callback(_remove_empty, made)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                for part in LOGS:
                    ownership.check_file(path.with_name(path.name + part))
                lock = WriterLock.take(path)
                undo.callback(lock.release)
                os.close(ownership.create_file(path))
                db = writable(path)
                fill(db, spec, launched_us)
            except (OSError, sqlite3.Error) as error:
                raise UserError(
                    f"The journal {path} could not be made: {error}.",
                    means="Nothing was started.",
                    do="Give --journal a path that can be written.",
                ) from error
            lock.unwritten_from(0)
            undo.pop_all()
        return cls(db, path, spec, lock=lock, memory=Memory())

    @classmethod
    def take_over(cls, path: str | Path, memory: Memory | None = None) -> "Journal":
        """An existing journal, to be written on by the successor of who wrote it.

        What a crash has torn off its end is cut: see `cut`. Raises UserError if another process
        writes it still, if other code than this has written it, if it is damaged anywhere else, or
        if `path` is none; then nothing has changed.

        memory  of who wrote it: what the disk has not taken
        """
        path = Path(path)
        check_there(path)
        ownership.check_file(path)
        memory = memory or Memory()
        with ExitStack() as undo, readable(path):
            lock = WriterLock.take(path)
            undo.callback(lock.release)
            with closing(only_readable(path)) as reader:
                spec = spec_of(reader)
                check_code(reader, path)
                started_again = was_started_again(reader)
                torn = torn_records(reader)
                half_written = cut_torn_writes(path, reader, power_lost=started_again)
                untold = untold_cut(reader)
            half_written = half_written and not memory.records
            cut = _cut_text(torn, half_written, started_again) or untold
            db = writable(path)
            undo.callback(db.close)
            if torn:
                _cut_off(db, torn[0], cut)
            journal = cls(db, path, spec, lock=lock, memory=memory)
            undo.pop_all()
        journal.cut = journal._remember(lock.left) or cut
        journal._leave_word(started_again=started_again)
        return journal

    def _leave_word(self, *, started_again: bool) -> None:
        """Keep in the file what a successor of ours would not find out by itself.

        What a crash has cut off is a record like others: on a full disk it waits in memory.
        """
        if self.cut:
            self._write(Cut(self._seq, self.cut))
        with self._unless_full():
            if started_again:
                note_boot(self._db)
            if not self.unwritten:
                self._tell_successor(0)

    def _remember(self, left: int) -> str:
        """Take in what the one before us could not write. What of that is lost, for human eyes.

        left  the first record that it could not write, or 0
        """
        assert self._memory is not None
        self._memory.drop_lines(up_to=self._seq)
        lines = list(self._unwritten_lines())
        if lines and lines[0].seq != self._seq + 1:  # The disk has lost more than it refused.
            self._memory.forget(len(self._memory.records))
            return f"its records from number {self._seq + 1} on are lost"
        if not self._memory.records:
            lost = self._seq < left
            return f"its disk was full, and records from number {left} on are lost" if lost else ""
        for record in self._memory.records:
            self._compare(record)
        self._tell_successor(self._seq + 1)
        self._seq = lines[-1].seq if lines else self._seq
        self._why = "the controller before this one could not write it"
        untold = self._untold_in_memory()
        self.write_again()
        return untold

    def _untold_in_memory(self) -> str:
        """Return what is cut off, if the one before us could write neither that nor an event."""
        for record in reversed(self._unwritten()):
            if isinstance(record, Cut):
                return record.text
            if isinstance(record, Line) and record.kind != NOTE:
                return ""
        return ""

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

    @property
    def launched_us(self) -> int:
        """When the command was given, by the host's clock; 0: that is not known."""
        with readable(self.path):
            return launched_of(self._db)

    def append(self, event: EVENTS) -> int:
        """Write one event; its sequence number, from 1. Durable against our own death on return."""
        return self._insert(event.at_us, type(event).__name__, _encoder.encode(event).decode())

    def note(self, at_us: int, text: str) -> int:
        """Write a line for human eyes."""
        return self._insert(at_us, NOTE, json.dumps(text))

    def append_rows(self, rank: Rank, epoch: Epoch, rows: list[Row]) -> None:
        """Write committed steps of one rank; see `append_batches`."""
        self.append_batches(columns_of([Committed(rank=rank, epoch=epoch, rows=rows)]))

    def append_batches(
        self, batches: Sequence[Columns], safe: Mapping[str, int] | None = None
    ) -> list[Unequal]:
        """Write committed steps in one transaction; returns those that were there with other
        values, which the later ones replace. Repeated equal rows are no news.

        safe  incarnation -> number of its facts that are in the journal once this is: see `safe`

        A row without values yields to one with: a rank that died between its gate and its return
        had nothing reported yet, and its joiner cannot know what the function would have returned.

        Raises StateMismatch, and writes nothing, where a job that wants exact numbers has a step
        with others.
        """
        self._unequal = []
        if batches or safe:
            self._write(Steps(list(batches), dict(safe or {})))
        return self._unequal

    def _differs(self, unequal: Unequal) -> None:
        if self.spec.exact:
            raise _two_truths(unequal)
        self._unequal.append(unequal)

    def events(self, after: int = 0) -> Iterator[tuple[int, EVENTS]]:
        """Events with a sequence number above `after`, in order."""
        return ((e.seq, e.event) for e in self.entries(after) if e.event is not None)

    def events_of(self, kind: type[T]) -> Iterator[T]:
        """Events of one kind, in order; the others are not even decoded."""
        query = "SELECT json FROM events WHERE kind = ? ORDER BY seq"
        with readable(self.path):
            for (text,) in self._db.execute(query, (kind.__name__,)):
                yield msgspec.json.decode(text, type=kind)
            for line in self._unwritten_lines():
                if line.kind == kind.__name__:
                    yield msgspec.json.decode(line.text, type=kind)

    def entries(self, after: int = 0, until: int = _LAST) -> Iterator[Entry]:
        """Events and notes above `after`, up to `until`, in order. Raises UserError on a damaged
        line."""
        query = "SELECT * FROM events WHERE seq > ? AND seq <= ? ORDER BY seq"
        with readable(self.path):
            for seq, at_us, kind, text, check in self._db.execute(query, (after, until)):
                if check != check_of(seq, at_us, kind, text):
                    raise ValueError(f"record {seq} is damaged")
                yield _entry(seq, at_us, kind, text)
            for line in self._unwritten_lines():
                if after < line.seq <= until:
                    yield _entry(line.seq, line.at_us, line.kind, line.text)

    def rows(self) -> Iterator[CommittedRow]:
        """Committed steps, by rank and step."""
        with readable(self.path):
            yield from rows.read(self._db)

    def commits(self) -> Iterator[tuple[Step, int]]:
        """When the lowest rank that has any committed each step, in order."""
        with readable(self.path):
            yield from rows.commits(self._db, Step(0), None)

    def committed(self, first: Step, last: Step | None) -> int:
        """How many steps from `first` to `last` (None: all) that rank has committed."""
        with readable(self.path):
            return sum(1 for _ in rows.commits(self._db, first, last))

    def rows_between(
        self, ranks: Iterable[int], first: Step, last: Step | None
    ) -> Iterator[CommittedRow]:
        """What was committed from `first` to `last` (None: all), by rank and step."""
        with readable(self.path):
            yield from rows.between(self._db, ranks, first, last)

    def newest_rows(self, count: int) -> Iterator[CommittedRow]:
        """Of every rank the last `count` steps, by rank and step."""
        with readable(self.path):
            written = self._newest_written(count)
            for rank in map(Rank, range(self.spec.world_size)):
                newest = {row.step: row for row in written.get(rank, [])}
                newest |= {row.step: row for row in self._unwritten_rows(rank)}
                yield from (newest[step] for step in sorted(newest)[-count:])

    def _newest_written(self, count: int) -> dict[Rank, list[CommittedRow]]:
        """From the last step back, until each rank has so many."""
        found: dict[Rank, list[CommittedRow]] = {}
        complete = 0
        for row in rows.newest_first(self._db):
            its = found.setdefault(row.rank, [])
            if len(its) < count:
                its.append(row)
                complete += len(its) == count
            if complete == self.spec.world_size:
                break
        return found

    def safe(self) -> dict[str, int]:
        """Incarnation of an agent -> how many of its facts it was told are safe, at least."""
        with readable(self.path):
            safe = dict(self._db.execute("SELECT incarnation, facts FROM safe"))
        for record in self._unwritten():
            safe |= record.safe if isinstance(record, Steps) else {}
        return safe

    def keep_bookmark(self, mark: Bookmark) -> bool:
        """Write what was known after its event; the state of older ones goes. False: not now."""
        if self.unwritten:
            return False
        with self._unless_full(), _transaction(self._db):
            bookmarks.write(self._db, mark)
            return True
        return False

    def bookmarks(self) -> tuple[list[Bookmark], str]:
        """Those that can be believed, and which is the first that cannot; see `bookmarks.read`."""
        with readable(self.path):
            return bookmarks.read(self._db)

    def drop_bookmarks(self, after: int) -> None:
        """Those behind later events than `after`. On a full disk they stay, and are no harm."""
        with self._unless_full(), _transaction(self._db):
            self._db.execute("DELETE FROM bookmarks WHERE seq > ?", (after,))

    def used(self) -> Iterator[samples.Used]:
        """What committed steps used, by step and rank."""
        with readable(self.path):
            yield from samples.read(self._db)

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file, as far as there is room; may wait for the
        disk."""
        with self._unless_full():
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        self._db.close()
        if self._memory is not None:
            self._memory.close()
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

    # --- what the disk does not take ---

    @property
    def unwritten(self) -> int:
        """Records that are in memory only, since the disk does not take them; see `why`."""
        return len(self._unwritten())

    @property
    def why(self) -> str:
        """What the disk said."""
        return self._why

    @property
    def lost(self) -> int:
        """Batches of committed steps that were too many even for memory."""
        return 0 if self._memory is None else self._memory.lost

    def write_again(self) -> bool:
        """Try to; whether nothing is left. At most so much at once that nobody waits for it."""
        first = self._unwritten()[:AT_ONCE]
        if not first:
            return True
        assert self._memory is not None
        try:
            with _transaction(self._db):
                for record in first:
                    self._put(record)
        except sqlite3.Error as error:
            self._not_now(error)
            return False
        self._memory.forget(len(first))
        if self.unwritten:
            return False
        self._blocks.clear()
        self._tell_successor(0)
        with self._unless_full():  # What was begun in vain would look like a crash's work.
            self._db.execute("PRAGMA busy_timeout = 0")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.execute("PRAGMA busy_timeout = 5000")
        return True

    def _unwritten(self) -> Sequence[Record]:
        return () if self._memory is None else self._memory.records

    def _unwritten_lines(self) -> Iterator[Line]:
        return (one for one in list(self._unwritten()) if isinstance(one, Line))

    def _unwritten_rows(self, rank: Rank) -> Iterator[CommittedRow]:
        for record in self._unwritten():
            for batch in record.batches if isinstance(record, Steps) else ():
                for row in dict(batch.each()).get(rank, ()):
                    yield CommittedRow(rank, row.step, batch.epoch, row.at_us, row.values)

    def _insert(self, at_us: int, kind: str, text: str) -> int:
        self._write(Line(self._seq + 1, at_us, kind, text))
        self._seq += 1
        return self._seq

    def _write(self, record: Record) -> None:
        """To the disk; to memory if that is full, or behind what waits there."""
        if self._lock is None or not self.unwritten:
            try:
                self._write_now(record)
                return
            except sqlite3.Error as error:
                self._not_now(error)
            self._tell_successor(self._seq + 1)
        self._keep(record)

    def _write_now(self, record: Record) -> None:
        if isinstance(record, Line):
            self._put(record)
            return
        with _transaction(self._db):
            self._put(record)

    def _put(self, record: Record) -> None:
        if isinstance(record, Steps):
            rows.write(self._db, record.batches, record.safe, self._differs)
            return
        if isinstance(record, Cut):
            note_cut(self._db, record.seq, record.text)
            return
        seq, at_us, kind, text = record.seq, record.at_us, record.kind, record.text
        self._db.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
            (seq, at_us, kind, text, check_of(seq, at_us, kind, text)),
        )

    def _keep(self, record: Record) -> None:
        assert self._memory is not None
        self._compare(record)
        try:
            self._memory.keep(record)
        except OSError as error:
            raise self._failed(f"{self._why}; nor is there memory") from error

    def _compare(self, record: Record) -> None:
        """Raise StateMismatch if a step has other values in the file or in memory.

        Steps of which the disk cannot read the file's part are compared when they are written.
        """
        if isinstance(record, Steps):
            with self._unless_full():
                rows.add(self._blocks, self._db, record.batches, self._differs)

    def _tell_successor(self, unwritten_from: int) -> None:
        if self._lock is not None:
            self._lock.unwritten_from(unwritten_from)

    def _not_now(self, error: sqlite3.Error) -> None:
        """Raises JobFailed if it never will be."""
        if self._lock is None:
            raise error
        if not may_pass(error):
            raise self._failed(str(error)) from error
        self._why = str(error)

    def _failed(self, why: str) -> JobFailed:
        return JobFailed(
            f"The journal {self.path} could not be written: {why}.",
            means="The job has ended: nothing must happen that is not in its journal.",
            do="Start again from the newest checkpoint (--resume), with a journal elsewhere.",
        )

    @contextmanager
    def _unless_full(self) -> Iterator[None]:
        """What need not be now, nor at all."""
        try:
            yield
        except sqlite3.Error as error:
            self._not_now(error)


def _cut_off(db: sqlite3.Connection, first: int, cut: str) -> None:
    """Remove records from this one on."""
    with _transaction(db):
        db.execute("DELETE FROM events WHERE seq >= ?", (first,))
        db.execute("DELETE FROM bookmarks WHERE seq >= ?", (first,))
        note_cut(db, first - 1, cut)


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it, or nothing."""
    db.execute("BEGIN")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # A full disk ends it by itself.
            db.execute("ROLLBACK")
        raise


def _entry(seq: int, at_us: int, kind: str, text: str) -> Entry:
    if kind == NOTE:
        return Entry(seq, at_us, kind, None, json.loads(text))
    return Entry(seq, at_us, kind, _decoder.decode(text))


def _cut_text(torn: list[int], half_written: int, started_again: bool) -> str:
    if torn:
        return f"its last {len(torn)} records, from number {torn[0]}, were damaged and are cut off"
    if half_written:
        return "its last write was not finished and is cut off"
    if started_again:
        return "the host has been started again, and its newest records may be lost with that"
    return ""


def _remove_empty(folders: list[Path]) -> None:
    """Remove what was made for nothing, the innermost first."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _two_truths(unequal: Unequal) -> StateMismatch:
    return StateMismatch(
        f"Rank {unequal.rank} committed step {unequal.step} twice with other values: "
        f"{unequal.text}.",
        means="One of the two is wrong, and with --numbers exact the job must not go on.",
        do="Is the step deterministic, and does it rely on nothing that is not compared "
        "(docs/limits.md has a list)? If so, report this: trainmover is at fault.",
    )
