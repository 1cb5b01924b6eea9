# SPDX-License-Identifier: Apache-2.0
"""Which files a shadow run opens: those that it must not read, and those that it should not write.

A script may begin from what it finds on disk, for instance from its own last snapshot. A rank began
before that was written, a standby begins after: it would stand elsewhere than the rank did. So a
file that the script reads, and that has been written since the recorded rank came to its first
step, makes the run worthless, and is named. What was written before, in set-up, the rank may have
read as well; what this run itself has written is its own affair. It mostly goes into copies (see
`overlay`); where the job's own file is changed that is told, once: who asks `job.is_shadow` first
changes nothing.

Python tells of every file that is opened (`sys.addaudithook`). The hook stays for good and is idle
but for runs in the sandbox. It runs in the middle of whoever opens the file, who may hold any lock,
so it must not ask what takes one: `tempfile.gettempdir()`, when first called, opens files to find a
folder that it can use, and holds a lock meanwhile; asked by the hook, it would wait for itself.
"""

import os
import stat
import sys
import tempfile
from types import FrameType
from typing import Any, Protocol

import trainmover
from trainmover.errors import StateMismatch
from trainmover.installed import is_installed
from trainmover.sandbox.process.modules import is_own_file
from trainmover.torch_internals.compiling import is_kept

_PACKAGE = os.path.join(os.path.dirname(trainmover.__file__), "")
_STANDS_IN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "overlay.py")
"""What Python's own functions lead to in a shadow run."""
_SYSTEM = ("/proc/", "/sys/", "/dev/")
_TEMPORARY = ("/tmp", "/var/tmp", "/usr/tmp")
_TEMPORARY_NAMED = ("TMPDIR", "TEMP", "TMP")
"""Where Python looks for a folder for temporary files, and variables that may name another."""


class Copies(Protocol):
    """Of files, which a run writes instead of these."""

    def covers(self, path: str, *, writes: bool) -> bool:
        """Whether who opens that file opens a copy."""
        ...

    def has_made(self, path: str) -> bool:
        """Whether the run has made it."""
        ...


class _NoCopies:
    def covers(self, path: str, *, writes: bool) -> bool:
        return False

    def has_made(self, path: str) -> bool:
        return False


class Opened:
    """One for the process; a run lies between `begin` and `end`, in its main thread or others.

    newer    of the run: the first file that was read and had been written since, in words
    written  the first file of the job's that any run has opened to change it, in words; "": none

    copies: what is written elsewhere, and which files the run has made
    """

    def __init__(self, copies: "Copies | None" = None) -> None:
        self._copies = copies or _NoCopies()
        self.newer = ""
        self.written = ""
        self._since_ns = 0
        self._own: set[str] = set()
        self._hooked = False

    def begin(self, since_ns: int) -> None:
        """A run in the sandbox begins. since_ns: when the recorded rank began its first step, in
        nanoseconds since 1970; 0: nobody knows"""
        if not self._hooked:
            self._hooked = True
            sys.addaudithook(self._hear)
        self.newer, self._own, self._since_ns = "", set(), since_ns

    def end(self) -> None:
        """Nothing is looked at any more."""
        self._since_ns = 0

    def check(self) -> None:
        """Raise StateMismatch, naming the file, if the run would begin elsewhere."""
        if self.newer:
            raise StateMismatch(
                self.newer,
                means="A standby cannot take over with it; the job trains on.",
                do="Continuing is the job's affair (--checkpoint, --resume): let the script write "
                "where it does not look as it begins, or begin from a file that stays as it is.",
            )

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not self._since_ns:
            return
        file, writes = file_in(arguments)
        if self._copies.covers(file, writes=writes):
            return
        if writes:
            self._writes_to(file)
        elif not self.newer and file not in self._own and _is_newer(file, self._since_ns):
            self._reads(file)

    def _writes_to(self, file: str) -> None:
        self._own.add(file)
        is_changed = os.path.isfile(file) and not self._copies.has_made(file)
        if self.written or not is_changed or _is_passing(file):
            return
        if place := place_of_script(sys._getframe(2)):
            self.written = (
                f"in the sandbox too the script changes {file} in place ({place}): ask "
                "job.is_shadow first, or a standby writes over what the job has written"
            )

    def _reads(self, file: str) -> None:
        if is_cache(file) or is_installed(file) or self._copies.has_made(file):
            return
        if place := place_of_script(sys._getframe(2)):
            self.newer = (
                f"the script reads {file} ({place}), which was written since the job began: it "
                "would begin elsewhere than the rank did"
            )


def file_in(arguments: tuple[Any, ...]) -> tuple[str, bool]:
    """Of an event "open": the file, "" where none is named, and whether it may be written to."""
    path, mode, flags = arguments
    if isinstance(path, int) or path is None:
        return "", False
    if mode is None:
        writes = flags & os.O_ACCMODE != os.O_RDONLY
    else:
        writes = not mode.startswith("r") or "+" in mode
    return os.path.abspath(os.fsdecode(path)), writes


def _is_newer(file: str, since_ns: int) -> bool:
    try:
        found = os.stat(file)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_mtime_ns > since_ns


def _is_passing(file: str) -> bool:
    """Whether what is written there is not there to stay."""
    return file.startswith((*_SYSTEM, *_temporary())) or is_cache(file)


def _temporary() -> list[str]:
    """The folder for temporary files; as long as nobody has asked for it, all that it may be."""
    chosen = tempfile.tempdir
    if chosen is not None:
        return [os.path.join(os.fsdecode(chosen), "")]
    named = [os.environ[name] for name in _TEMPORARY_NAMED if os.environ.get(name)]
    return [os.path.join(os.path.abspath(folder), "") for folder in (*named, *_TEMPORARY)]


def is_cache(file: str) -> bool:
    """Of what Python or torch has compiled."""
    return file.startswith(_SYSTEM) or "__pycache__" in file or is_kept(file)


def place_of_script(frame: FrameType | None, *, through: bool = False) -> str:
    """The innermost line of the script's own that led to a frame; "" if there is none, or if our
    own code lies between. through: that does not matter"""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_PACKAGE):
            if not through and path != _STANDS_IN:
                return ""
        elif os.path.isfile(path) and is_own_file(path):
            return f"{os.path.basename(path)} line {frame.f_lineno}"
        frame = frame.f_back
    return ""


def is_ours(frame: FrameType | None) -> bool:
    """Whether code of ours has led to a frame."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_PACKAGE) and path != _STANDS_IN:
            return True
        frame = frame.f_back
    return False
