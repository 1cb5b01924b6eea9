# SPDX-License-Identifier: Apache-2.0
"""A database of SQLite's that lies in memory: no other process has it."""

from typing import Any

import xxhash

from trainmover.state.class_caches import cached_by_class

_WHOLE_MAX = 1 << 20
"""Bytes of one that is read as a whole; of a larger one only how often rows were changed."""


@cached_by_class
def is_one(kind: type) -> bool:
    """Whether objects of this class are connections to databases."""
    return any((one.__module__, one.__name__) == ("sqlite3", "Connection") for one in kind.__mro__)


def content_of(connection: Any) -> list[Any]:
    """What tells all that lies in memory; [] where nothing does, or where it cannot be read, as in
    another thread than that which has opened it."""
    try:
        cursor = connection.cursor()
        cursor.row_factory = None
        named = [name for _, name, file in cursor.execute("PRAGMA database_list") if not file]
        told = [part for name in named for part in (name, *_told(connection, cursor, name))]
    except connection.Error:
        return []
    return [connection.total_changes, *told] if told else []


def _told(connection: Any, cursor: Any, name: str) -> list[Any]:
    quoted = '"{}"'.format(name.replace('"', '""'))
    pages, size = (
        cursor.execute(f"PRAGMA {quoted}.{asked}").fetchone()[0]
        for asked in ("page_count", "page_size")
    )
    if not pages or pages * size > _WHOLE_MAX:
        return [pages]
    return [xxhash.xxh3_64_digest(connection.serialize(name=name))]
