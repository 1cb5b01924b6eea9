# SPDX-License-Identifier: Apache-2.0
"""A journal of an earlier run at the place of a new one is kept beside it, under a number."""

import os
from itertools import count
from pathlib import Path

from trainmover.errors import UserError
from trainmover.journal.file import LOGS
from trainmover.journal.lock import WriterLock

_PARTS = (*LOGS, "")
"""The file itself last: if this is cut short, it finds its log under the same number again."""


def keep_aside(path: Path) -> Path | None:
    """Where it is now; None if there was none. Raises UserError if it is written still."""
    if not path.exists():
        return None
    lock = WriterLock.take(path)
    try:
        places = (path.with_name(f"{path.name}.{number}") for number in count(1))
        there = next(place for place in places if not any(map(os.path.lexists, _parts(place))))
        for its, kept in zip(_parts(path), _parts(there), strict=True):
            if its.exists():
                its.rename(kept)
        lock.unwritten_from(0)
    except OSError as error:
        raise UserError(
            f"The journal {path} of an earlier run cannot be moved aside: {error.strerror}.",
            means="Nothing was started.",
            do="Give --journal another path.",
        ) from error
    finally:
        lock.release()
    return there


def _parts(path: Path) -> list[Path]:
    return [path.with_name(path.name + part) for part in _PARTS]
