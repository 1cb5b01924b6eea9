# SPDX-License-Identifier: Apache-2.0
"""A journal as a file: SQLite's, with a write-ahead log. See `journal` for what is in it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from trainmover.errors import UserError
from trainmover.journal import bookmarks, rows, samples
from trainmover.journal.damage import Damaged
from trainmover.protocol.malformed import MALFORMED
from trainmover.protocol.messages import PROTOCOL, JobSpec
from trainmover.version import VERSION

FORMAT = "trainmover journal 7"
LOGS = ("-wal", "-shm")
"""What SQLite keeps beside it while it is written."""
CODE = f"{VERSION}, protocol {PROTOCOL}"
"""Of who writes it. Decisions that were made by other code need not come out the same again."""
NOTE = "Note"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (seq INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, kind TEXT NOT NULL,
                     json TEXT NOT NULL, crc INTEGER NOT NULL);
{rows.SCHEMA}{samples.SCHEMA}{bookmarks.SCHEMA}"""


def check_there(path: Path) -> None:
    if not path.is_file():
        raise UserError(
            f"There is no journal at {path}.",
            means="Nothing was read.",
            do="Give the path that the run was started with (--journal).",
        )


def only_readable(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def writable(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute("PRAGMA wal_autocheckpoint=0")
    return db


def fill(db: sqlite3.Connection, spec: JobSpec, launched_us: int = 0) -> None:
    """Make a new one of it."""
    db.executescript("BEGIN;" + SCHEMA + "COMMIT;")
    meta = {"format": FORMAT, "version": CODE, "spec": msgspec.json.encode(spec).decode()}
    if launched_us:
        meta["launched"] = str(launched_us)
    db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
    note_boot(db)


def note_boot(db: sqlite3.Connection) -> None:
    """It is written by a process of this start of the host."""
    db.execute("INSERT OR REPLACE INTO meta VALUES ('boot', ?)", (_boot_id(),))


def was_started_again(db: sqlite3.Connection) -> bool:
    """Whether the host has, since. A process that dies takes nothing of what it has written with
    it. A host that loses power does: the newest writes to the log, often all of each, so that
    nothing in the file shows it."""
    row = db.execute("SELECT value FROM meta WHERE key = 'boot'").fetchone()
    return row is not None and row[0] != _boot_id()


def note_cut(db: sqlite3.Connection, seq: int, text: str) -> None:
    """Keep what a crash has cut off behind this record, until an event says so."""
    value = msgspec.json.encode((seq, text)).decode()
    db.execute("INSERT OR REPLACE INTO meta VALUES ('cut', ?)", (value,))


def untold_cut(db: sqlite3.Connection) -> str:
    """Return what a crash has cut off, if whoever found that died before an event said so."""
    row = db.execute("SELECT value FROM meta WHERE key = 'cut'").fetchone()
    if row is None:
        return ""
    seq, text = msgspec.json.decode(row[0], type=tuple[int, str])
    query = "SELECT 1 FROM events WHERE seq > ? AND kind != ? LIMIT 1"
    return "" if db.execute(query, (seq, NOTE)).fetchone() else text


def _boot_id() -> str:
    """Another one whenever the host starts; "" where that is not known."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def launched_of(db: sqlite3.Connection) -> int:
    """Return when the command was given, by the host's clock; 0: that is not known."""
    row = db.execute("SELECT value FROM meta WHERE key = 'launched'").fetchone()
    return 0 if row is None else int(row[0])


def spec_of(db: sqlite3.Connection) -> JobSpec:
    meta = dict(db.execute("SELECT key, value FROM meta"))
    if meta.get("format") != FORMAT:
        raise sqlite3.DatabaseError("it has another format")
    return msgspec.json.decode(meta["spec"], type=JobSpec)


def check_code(db: sqlite3.Connection, path: Path) -> None:
    """Raises UserError if it is not ours to go on with."""
    (wrote,) = db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
    if wrote != CODE:
        raise UserError(
            f"{path} was written by trainmover {wrote}; this is {CODE}.",
            means="The run was not taken over: its agents and workers do not know of this, and go "
            "on for as long as a controller may be away.",
            do=f"Start the controller again with trainmover {wrote}.",
        )


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turns whatever a damaged or alien file provokes into a UserError."""
    try:
        yield
    except (
        OSError,
        sqlite3.Error,
        Damaged,
        *MALFORMED,
        ValueError,
        LookupError,
        TypeError,
    ) as error:
        raise UserError(
            f"{path} is not a journal that can be read: {error}.",
            means="Nothing was changed.",
            do="Give the journal of a run of this version of trainmover.",
        ) from error


NO_ROOM = frozenset(
    [
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PERM,
    ]
)


def may_pass(error: sqlite3.Error) -> bool:
    """Whether it is of the disk, which may take later what it does not take now."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in NO_ROOM
