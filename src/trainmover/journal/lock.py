# SPDX-License-Identifier: Apache-2.0
"""Who may write a journal: one process at a time, for as long as it lives.

The lock lies on a file beside the journal, so that readers of the journal are never in the way. It
is the kernel's: a killed writer holds nothing.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from trainmover import ownership
from trainmover.errors import UserError

_WORD_BYTES = 40


class WriterLock:
    """Held until `release`. Use `take`.

    left  number of the first record that the holder before us had not written when it died; 0:
          none is known of
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self.left = _left(descriptor)
        self.unwritten_from(self.left)

    @classmethod
    def take(cls, journal: Path) -> "WriterLock":
        """Raises UserError if another process writes this journal, or if its lock could be another
        user's or is a link, and OSError."""
        path = journal.with_name(f"{journal.name}.lock")
        while True:
            descriptor = ownership.open_file(path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise _taken(journal, descriptor) from error
            if _is_there(path, descriptor):
                break
            os.close(descriptor)  # It was removed by who had it, between our two calls.
        return cls(path, descriptor)

    def unwritten_from(self, seq: int) -> None:
        """Leave word for a successor. In place: on a full disk there is no room for more."""
        self._unwritten = seq
        word = f"{os.getpid()} {seq}".ljust(_WORD_BYTES).encode()
        with suppress(OSError):  # He may then not know what he lacks; machines that do refuse him.
            os.pwrite(self._descriptor, word, 0)

    def release(self) -> None:
        """Let another process have it. Only once. The file stays if it says that records lack."""
        if not self._unwritten and _is_there(self._path, self._descriptor):
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _left(descriptor: int) -> int:
    _, _, seq = os.pread(descriptor, _WORD_BYTES, 0).decode(errors="replace").partition(" ")
    return int(seq) if seq.strip().isdecimal() else 0


def _is_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _taken(journal: Path, descriptor: int) -> UserError:
    pid = os.pread(descriptor, _WORD_BYTES, 0).decode(errors="replace").partition(" ")[0]
    os.close(descriptor)
    return UserError(
        f"A controller writes {journal} already: process {pid or 'unknown'}.",
        means="Nothing was started or changed: a job has one controller.",
        do="If that process is no controller any more, end it; its successor may then take over.",
    )
