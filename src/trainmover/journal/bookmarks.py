# SPDX-License-Identifier: Apache-2.0
"""Bookmarks: what was known after an event, so that nobody has to read from the beginning.

What a bookmark says also follows from the events before it, so none is ever needed: one that is
damaged, or was made by other code, is not used, and everything is read again. It also keeps the
sentences that were told of the events since the one before it; these do not follow from one event
alone.
"""

import sqlite3
from dataclasses import dataclass
from hashlib import blake2b

SCHEMA = """
CREATE TABLE bookmarks (seq INTEGER PRIMARY KEY, code TEXT NOT NULL, state BLOB NOT NULL,
                        told BLOB NOT NULL, digest BLOB NOT NULL);
"""
STATES_KEPT = 2
_NO_STATE = b""


@dataclass(frozen=True)
class Bookmark:
    """seq: of the event that it stands behind; code: whose `state` it is; told: sentences."""

    seq: int
    code: str
    state: bytes
    told: bytes


def write(db: sqlite3.Connection, mark: Bookmark) -> None:
    """Within the caller's transaction. Of older ones only what was told is kept."""
    old = db.execute(
        "SELECT * FROM bookmarks WHERE state != ? ORDER BY seq DESC LIMIT -1 OFFSET ?",
        (_NO_STATE, STATES_KEPT - 1),
    ).fetchall()
    for seq, code, _, told, _ in old:
        _put(db, Bookmark(seq, code, _NO_STATE, told))
    _put(db, mark)


def read(db: sqlite3.Connection) -> tuple[list[Bookmark], str]:
    """Oldest first, up to the first that is damaged; and which that is, in words, or "".

    Only the newest few have a state.
    """
    marks: list[Bookmark] = []
    for seq, code, state, told, digest in db.execute("SELECT * FROM bookmarks ORDER BY seq"):
        event = db.execute("SELECT crc FROM events WHERE seq = ?", (seq,)).fetchone()
        blobs = isinstance(state, bytes) and isinstance(told, bytes) and isinstance(code, str)
        if event is None or not blobs or digest != _digest(db, seq, code, state, told):
            return marks, f"the bookmark behind record {seq} is damaged"
        marks.append(Bookmark(seq, code, state, told))
    return marks, ""


def _put(db: sqlite3.Connection, mark: Bookmark) -> None:
    fields = (mark.seq, mark.code, mark.state, mark.told)
    digest = _digest(db, *fields)
    db.execute("INSERT OR REPLACE INTO bookmarks VALUES (?, ?, ?, ?, ?)", (*fields, digest))


def _digest(db: sqlite3.Connection, seq: int, code: str, state: bytes, told: bytes) -> bytes:
    """Also of the event: a bookmark belongs to this history and no other."""
    (check,) = db.execute("SELECT crc FROM events WHERE seq = ?", (seq,)).fetchone()
    digest = blake2b(f"{seq} {check} {code} {len(state)} ".encode(), digest_size=16)
    digest.update(state)
    digest.update(told)
    return digest.digest()
