"""What a shadow run writes to the job's files goes into copies of its own.

A standby runs the script while the job trains, and a script that opens its log to write, saves a
checkpoint or clears a folder as it begins would do so to the job's. So a file that was there before
the run made one of that name is left as it is: what is written to it goes into a copy, which the
run reads instead from there on, and which is thrown away; what is deleted stays. What the run makes
anew in its set-up is made, since libraries may look for it that read files themselves: a data set
on a machine that has none yet. From the first step on no file is made either: the job may be about
to make one of that name.

Once the run is live, what it has open leads to the files themselves, behind what they have by then.

All this is done where Python's code asks for it, by `open` or a function of `os`, and where torch
writes. Whoever opens a file to read and write it at once (`r+`, a memory map) changes the file, and
so does a library in C that writes by itself.
"""

import builtins
import errno
import functools
import io
import os
import shutil
import stat
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePath
from types import FrameType
from typing import IO, Any

from trainmover.sandbox.process.opened import is_cache, is_passing, place_of_script
from trainmover.torch_internals.writing import write_to

_Opener = Callable[[str, int], int]
_ARCHIVES = "zipfile"
"""It opens a file for both, and maps none."""


class Overlay:
    """One for the process; a run lies between `begin` and `end`, and is live from `lift` on.

    in_steps  its set-up is over
    """

    def __init__(self) -> None:
        self.in_steps = False
        self._process = 0
        self._copies: dict[str, int] = {}  # Without a name, by a descriptor: nobody need clear up.
        self._makes_copy = 0  # A thread that does.
        self._made: set[str] = set()  # By the run, and not there before.
        self._gone: set[str] = set()  # The job's, which the run has deleted.
        self._open: list[tuple[weakref.ref[IO[Any]], str]] = []
        self._ends: list[Callable[[], None]] = []

    def begin(self) -> None:
        """A shadow run begins."""
        self._process, self.in_steps = os.getpid(), False
        self._ends.append(write_to(self._written_to))
        self._stand_in(builtins, "open", self._opening)
        self._stand_in(io, "open", self._opening)
        self._stand_in(os, "open", self._opening_below)
        self._stand_in(os, "stat", self._asking)
        for name in ("remove", "unlink", "rmdir"):
            self._stand_in(os, name, self._removing)
        for name in ("rename", "replace"):
            self._stand_in(os, name, self._moving)
        self._stand_in(os, "mkdir", self._making_folder)
        for name in ("link", "symlink"):
            self._stand_in(os, name, self._making_link)

    def lift(self) -> None:
        """The run is live: what it has opened to write leads to the files themselves."""
        opened, self._open = self._open, []
        for known, path in opened:
            file = known()
            if file is not None and not file.closed:
                file.flush()
                _lead(file.fileno(), path)
        self.end()

    def end(self) -> None:
        """The run is over: copies are thrown away, and all is as it was."""
        self._process = 0
        while self._ends:
            self._ends.pop()()
        for known, _ in self._open:
            with suppress(OSError, ValueError):
                file = known()
                if file is not None:
                    file.close()
        for copy in self._copies.values():
            os.close(copy)
        self._open, self._copies, self._made, self._gone = [], {}, set(), set()

    def covers(self, path: str) -> bool:
        """Whether who opens that file has a copy, or is about to make one."""
        is_own = self._makes_copy == threading.get_ident()
        return is_own or os.path.realpath(path) in self._copies

    def has_made(self, path: str) -> bool:
        """Whether the run has: it was not there before."""
        return self._is_made(os.path.realpath(path))

    # --- what stands in for functions -------------------------------------------------------------

    def _stand_in(self, module: Any, name: str, instead: Callable[..., Any]) -> None:
        real = getattr(module, name)

        @functools.wraps(real)
        def standing_in(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() != self._process:  # The run is over, or has forked this process.
                return real(*args, **kwargs)
            return instead(real, sys._getframe(1), *args, **kwargs)

        def end() -> None:
            if getattr(module, name) is standing_in:  # Else the script has put its own around it.
                setattr(module, name, real)

        setattr(module, name, standing_in)
        self._ends.append(end)

    def _opening(
        self,
        real: Callable[..., IO[Any]],
        frame: FrameType,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: _Opener | None = None,
    ) -> IO[Any]:
        path, writes = _path_of(file), _writes(mode)
        if opener is not None or not self._is_led(path, mode, frame):
            if path in self._gone and not writes:
                raise _missing(file)
            self._note(path)
            return real(file, mode, buffering, encoding, errors, newline, closefd, opener)
        opener = _leading_to(self._copy_of(path))
        opened = real(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if writes:
            self._open.append((weakref.ref(opened), path))
        return opened

    def _is_led(self, path: str, mode: str, frame: FrameType) -> bool:
        """Whether it is the copy that is opened, which is made if it is written first."""
        if path in self._copies or not _writes(mode):
            return path in self._copies and "x" not in mode
        if "+" in mode and frame.f_globals.get("__name__") != _ARCHIVES:
            return False
        if not self._needs_copy(path, frame):
            return False
        if "w" not in mode and path not in self._gone:
            _begin_behind(path, self._copy_of(path), is_read="+" in mode)
        return True

    def _opening_below(
        self, real: Callable[..., int], _: FrameType, path: Any, *args: Any, **kwargs: Any
    ) -> int:
        self._note(_path_of(path, kwargs.get("dir_fd")))
        return real(path, *args, **kwargs)

    def _asking(
        self, real: Callable[..., os.stat_result], _: FrameType, path: Any, **kwargs: Any
    ) -> os.stat_result:
        if self._copies or self._gone:
            own = _path_of(path, kwargs.get("dir_fd"))
            if own in self._copies:
                return os.fstat(self._copies[own])
            if own in self._gone:
                raise _missing(path)
        return real(path, **kwargs)

    def _written_to(self, path: str) -> str:
        """Where torch is to write what it was to write to that file."""
        own = _path_of(path)
        if self._needs_copy(own, sys._getframe(1), through=True):
            return self._copy_of(own)
        self._note(own)
        return path

    def _removing(
        self, real: Callable[..., None], frame: FrameType, path: Any, **kwargs: Any
    ) -> None:
        name = _name_of(path, kwargs.get("dir_fd"))
        if self._is_the_jobs(name, frame):
            self._forget(name)
            self._gone.add(name)
        else:
            real(path, **kwargs)
            self._made.discard(name)

    def _moving(
        self, real: Callable[..., None], frame: FrameType, src: Any, dst: Any, **kwargs: Any
    ) -> None:
        source, there = _name_of(src), _name_of(dst)
        is_jobs, needs_copy = self._is_the_jobs(source, frame), self._needs_copy(there, frame)
        if not is_jobs and not needs_copy:
            self._note(there)
            real(src, dst, **kwargs)
            self._made.discard(source)
            return
        if not _is_a(stat.S_ISDIR, source):
            self._note(there)
            _copy(self._copy_of(source), self._copy_of(there))
        if is_jobs:
            self._forget(source)
            self._gone.add(source)
        else:
            os.remove(source)

    def _making_folder(
        self, real: Callable[..., None], _: FrameType, path: Any, *args: Any, **kwargs: Any
    ) -> None:
        self._make(_name_of(path, kwargs.get("dir_fd")), lambda: real(path, *args, **kwargs))

    def _making_link(
        self, real: Callable[..., None], _: FrameType, src: Any, dst: Any, *args: Any, **kwargs: Any
    ) -> None:
        folder = kwargs.get("dir_fd", kwargs.get("dst_dir_fd"))
        self._make(_name_of(dst, folder), lambda: real(src, dst, *args, **kwargs))

    def _make(self, name: str, make: Callable[[], None]) -> None:
        if name in self._gone:
            self._gone.discard(name)
            return
        make()
        self._made.add(name)

    # --- files ------------------------------------------------------------------------------------

    def _needs_copy(self, path: str, frame: FrameType, *, through: bool = False) -> bool:
        """Whether the file is written elsewhere; from here on it has a copy. through: code of ours
        asks for torch"""
        if path in self._copies:
            return True
        if not os.path.lexists(path):
            may_be = self._is_to_be_made(path)
        else:
            may_be = _is_a(stat.S_ISREG, path) and not self._is_made(path)
        if not may_be or not _is_led_by_script(path, frame, through=through):
            return False
        self._makes_copy = threading.get_ident()
        try:
            with tempfile.TemporaryFile() as made:
                self._copies[path] = os.open(_by_descriptor(made.fileno()), os.O_RDONLY)
        finally:
            self._makes_copy = 0
        return True

    def _is_to_be_made(self, path: str) -> bool:
        """Whether it is to stay, and the job may make it too."""
        folder = os.path.dirname(path)
        return self.in_steps and not is_passing(path) and _is_a(stat.S_ISDIR, folder)

    def _copy_of(self, path: str) -> str:
        """A name of its copy; of one that has none its own."""
        return _by_descriptor(self._copies[path]) if path in self._copies else path

    def _forget(self, path: str) -> None:
        """Its copy, if it has one, is of no use any more."""
        if path in self._copies:
            os.close(self._copies.pop(path))

    def _is_the_jobs(self, path: str, frame: FrameType, *, through: bool = False) -> bool:
        """Whether it was there before the run, whose own lines are about to change it."""
        if path in self._copies:
            return True
        is_old = os.path.lexists(path) and not self._is_made(path)
        return is_old and _is_led_by_script(path, frame, through=through)

    def _is_made(self, path: str) -> bool:
        """By the run, or in a folder that it has made."""
        return not self._made.isdisjoint([path, *map(str, PurePath(path).parents)])

    def _note(self, path: str) -> None:
        """It is about to be opened: if it is not there, it is made."""
        if path and not os.path.lexists(path):
            self._made.add(path)


def _is_led_by_script(path: str, frame: FrameType, *, through: bool) -> bool:
    """Whether its own lines write there. through: code of ours asks"""
    return not is_cache(path) and bool(place_of_script(frame, through=through))


def _is_a(kind: Callable[[int], bool], path: str) -> bool:
    """Whether there is such a thing, whatever the run sees. path: without links"""
    try:
        return kind(os.lstat(path).st_mode)
    except OSError:
        return False


def _missing(file: Any) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)


def _writes(mode: str) -> bool:
    return not {*mode}.isdisjoint("wa+")


def _path_of(file: Any, dir_fd: int | None = None) -> str:
    """Where links lead to; "": it is no file of a name."""
    try:
        return "" if isinstance(file, int) else os.path.realpath(_named(file, dir_fd))
    except (TypeError, ValueError, OSError):
        return ""  # Whoever is asked for it says so.


def _name_of(file: Any, dir_fd: int | None = None) -> str:
    """The name itself, which may be a link's."""
    try:
        folder, name = os.path.split(os.path.abspath(_named(file, dir_fd)))
    except (TypeError, ValueError, OSError):
        return ""
    return os.path.join(os.path.realpath(folder), name)


def _named(file: Any, dir_fd: int | None) -> str:
    path = os.fsdecode(file)
    return path if dir_fd is None else os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), path)


def _by_descriptor(number: int) -> str:
    """A name by which an open file can be opened again."""
    return f"/proc/self/fd/{number}"


def _leading_to(copy: str) -> _Opener:
    return lambda _, flags: os.open(copy, flags, 0o600)


def _begin_behind(path: str, copy: str, *, is_read: bool) -> None:
    """Who adds to a file begins where it ends. is_read: it may be read as well"""
    if is_read and os.path.lexists(path):
        _copy(path, copy)
        return
    with io.FileIO(copy, "w") as made:
        made.truncate(os.lstat(path).st_size if os.path.lexists(path) else 0)


def _copy(source: str, target: str) -> None:
    """These files themselves."""
    with io.FileIO(source) as held, io.FileIO(target, "w") as made:
        shutil.copyfileobj(held, made)


def _lead(descriptor: int, path: str) -> None:
    """From here on it stands for this file, behind what that has."""
    there = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(there, descriptor, inheritable=os.get_inheritable(descriptor))
    os.close(there)
