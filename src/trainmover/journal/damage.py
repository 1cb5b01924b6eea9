# SPDX-License-Identifier: Apache-2.0
"""What a crash may do to a journal, told from what only a broken disk does.

A crash tears the end: the last records are wrong, or SQLite's write-ahead log ends in the middle of
a write. Where the host has lost power, the log may have holes: all from the first on is the end.
Nothing followed from it that lasts, so it is cut, and that is reported. A record that is wrong
although good ones follow it is another matter: what was decided on it is in doubt. That is an error
which names the record, and nothing is changed.
"""

import os
import sqlite3
import struct
import zlib
from contextlib import suppress
from pathlib import Path

_WAL_HEADER = struct.Struct(">IIIII")
_WAL_HEADER_BYTES = 32
_FRAME = struct.Struct(">II8s")
_FRAME_HEADER_BYTES = 24
_SHM_FRAMES = struct.Struct("=16xI")
_SALTS = slice(16, 24)


class Damaged(Exception):
    """A record, named in the text, is wrong although good ones follow."""


def check_of(seq: int, at_us: int, kind: str, text: str) -> int:
    """What stands beside a record to show that it is whole.

    >>> check_of(1, 2, "Tick", "{}") == check_of(2, 1, "Tick", "{}")
    False
    """
    return zlib.crc32(f"{seq} {at_us} {kind} {text}".encode())


def torn_records(db: sqlite3.Connection) -> list[int]:
    """Numbers of the records that a crash has spoilt: the last ones. Raises Damaged."""
    torn: list[int] = []
    expected = 1
    for seq, at_us, kind, text, check in db.execute(
        "SELECT seq, at_us, kind, json, crc FROM events ORDER BY seq"
    ):
        if not _is_whole(seq, at_us, kind, text, check):
            torn.append(seq)
        elif torn:
            raise Damaged(f"record {torn[0]} is damaged, and good ones follow it")
        elif seq != expected:
            raise Damaged(f"record {expected} is missing, and good ones follow it")
        expected = seq + 1
    return torn


def cut_torn_writes(path: Path, db: sqlite3.Connection, *, power_lost: bool = False) -> int:
    """Cut the end of the write-ahead log if its last write was not finished; return 1 then.

    SQLite goes on from the last good write and says nothing. Whole writes behind a bad one are the
    work of a broken disk, unless the host has lost power: it writes pages of the log in any order.
    They go then, or the next successor would find them. db: an open connection, which has read
    that log. Raises Damaged.
    """
    db.execute("SELECT count(*) FROM meta").fetchone()
    log, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    if not log.exists() or not index.exists():
        return 0
    (frames_good,) = _SHM_FRAMES.unpack(index.read_bytes()[: _SHM_FRAMES.size])
    with log.open("rb") as file:
        header = file.read(_WAL_HEADER_BYTES)
        if len(header) < _WAL_HEADER_BYTES:
            return 0
        page_bytes = _WAL_HEADER.unpack_from(header)[2]
        frame_bytes = _FRAME_HEADER_BYTES + page_bytes
        end = _WAL_HEADER_BYTES + frames_good * frame_bytes
        file.seek(end)
        frames = commits = 0
        while len(frame := file.read(frame_bytes)) >= _FRAME.size:
            _, is_commit, salts = _FRAME.unpack_from(frame)
            if salts != header[_SALTS]:
                break  # Left from before the log was last begun anew.
            frames += 1
            commits += bool(is_commit) and len(frame) == frame_bytes
    if commits > 1 and not power_lost:
        raise Damaged(
            f"its write-ahead log is damaged after {frames_good} pages, "
            f"and {commits} more writes follow"
        )
    if frames or power_lost:
        with suppress(OSError):
            os.truncate(log, end)
    return int(frames > 0)


def _is_whole(seq: int, at_us: object, kind: object, text: object, check: object) -> bool:
    if not (isinstance(at_us, int) and isinstance(kind, str) and isinstance(text, str)):
        return False
    return check == check_of(seq, at_us, kind, text)
