# SPDX-License-Identifier: Apache-2.0
"""What a shadow run writes to the job's files goes into copies of its own.

A standby runs the script while the job trains, and a script that opens its log to write, saves a
checkpoint or clears a folder as it begins would do so to the job's. So a file that was there before
the run made one of that name is left as it is: what is written to it goes into a copy, which the
run reads instead from there on, and which is thrown away; what is deleted stays. What the run makes
anew is made, since libraries may look for it that read files themselves.

Once the run is live, the texts that it has open lead to the files themselves, behind what they have
by then. Whatever else holds a copy then (an archive, a memory map) could not go on, and is told of
before.

All this is done where Python's code asks for it, by `open` or by what it does with names in `os`,
and where torch writes. Whoever changes a file in place (`r+`, a memory map, `os.open`) changes it,
and so does a library in C that writes by itself, another process, and a thread that outlives the
run. Folders still list what the run has deleted.
"""

import builtins
import bz2
import functools
import io
import os
import pkgutil
import shutil
import stat
import sys
import tarfile
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePath
from types import FrameType
from typing import IO, Any
from weakref import WeakSet

from numpy.lib import _datasource

from trainmover.errors import StateMismatch
from trainmover.sandbox.process.opened import is_cache, is_ours, place_of_script
from trainmover.torch_internals.writing import write_to

COPIES_MAX = 256
"""Each takes a descriptor, of which a process has a thousand."""
_numpy: Any = _datasource
_OF_NUMPY = _numpy._file_openers._file_openers
"""Functions by endings of names, None for all others."""
_OPEN = (
    *((vars(builtins), "open"), (vars(io), "open"), (vars(tarfile), "bltn_open")),
    *((vars(bz2), "_builtin_open"), (_OF_NUMPY, None)),
)
_ARCHIVES = "zipfile"
"""It opens a file to read and write it at once, and maps none."""
_MAPPERS = ("numpy.memmap", "numpy.core.memmap", "numpy._core.memmap")
_SUPPORTS = (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks)
_Opener = Callable[[str, int], int]


class _StandIn:
    """Of a function of Python's: no method of a class that keeps it, and pickled as that."""

    def __init__(self, name: str, real: Any, call: Callable[..., Any]) -> None:
        functools.update_wrapper(self, real)
        self._name, self._call = name, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(sys._getframe(1), *args, **kwargs)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return pkgutil.resolve_name, (self._name,)


class _Held:
    """A text that the run has opened to write."""

    def __init__(self, file: IO[Any], path: str, mode: str) -> None:
        self.path, self.adds = path, "a" in mode
        self._file = weakref.ref(file)

    @property
    def file(self) -> IO[Any] | None:
        """None: it is closed, or what lies below is used without it."""
        file = self._file()
        with suppress(ValueError):
            return None if file is None or file.closed else file
        return None

    def lead(self) -> None:
        """From here on it stands for the file itself, behind what that has."""
        file = self.file
        if file is None:
            return
        file.flush()
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if self.adds else 0)
        there, descriptor = os.open(self.path, flags, 0o666), file.fileno()
        os.dup2(there, descriptor, inheritable=os.get_inheritable(descriptor))
        os.close(there)
        file.seek(0, os.SEEK_END)


class Overlay:
    """One for the process; a run lies between `begin` and `end`, and is live from `lift` on."""

    def __init__(self) -> None:
        self._process = 0
        self._lock = threading.RLock()
        self._threads = WeakSet[threading.Thread]()  # That are none of the run's.
        self._copies: dict[str, int] = {}  # Without a name, by a descriptor: nobody need clear up.
        self._leads = 0  # A thread, which opens a copy.
        self._behind: dict[str, int] = {}  # Of these, those that have only what the run has added.
        self._made: set[str] = set()  # By the run, and not there before.
        self._gone: set[str] = set()  # The job's, which the run has deleted.
        self._held: list[_Held] = []
        self._ends: list[Callable[[], None]] = []

    def begin(self) -> None:
        """A shadow run begins, in the main thread."""
        self._process = os.getpid()
        self._threads = WeakSet(threading.enumerate()) - {threading.current_thread()}
        self._ends.append(write_to(self._written_to))
        self._stand_in("builtins:open", self._opening, *_OPEN)
        instead: dict[str, Callable[..., None]] = {
            **dict.fromkeys(("remove", "unlink"), self._removing),
            **dict.fromkeys(("rename", "replace"), self._moving),
            **dict.fromkeys(("link", "symlink"), self._making_link),
            **{"rmdir": self._removing_folder, "mkdir": self._making_folder},
        }
        self._stand_in("os:open", self._opening_below, (vars(os), "open"))
        for name, function in instead.items():
            self._stand_in(f"os:{name}", function, (vars(os), name))

    def check(self) -> None:
        """Raise StateMismatch, naming the file, if what the run has open could not go on as the
        rank."""
        texts = {held.file.fileno() for held in self._held if held.file is not None}
        mapped = Path("/proc/self/maps").read_text() if self._copies else ""
        for path, copy in self._copies.items():
            inside = os.readlink(_by_descriptor(copy))
            others = {*_open_as(inside)} - {copy} - texts
            if others or f" {inside}\n" in mapped:
                raise StateMismatch(
                    f"the script keeps {path} open, and not as a text that it only writes",
                    means="A standby, which has a copy, cannot go on with it; the job trains on.",
                    do="Close it behind each write, or open it where job.is_shadow is false.",
                )

    def lift(self) -> None:
        """The run is live: what it has opened to write leads to the files themselves. Raises
        OSError if one cannot be opened."""
        held, self._held, self._process = self._held, [], 0
        try:
            with ExitStack() as every:  # All of them, whatever one of them raises.
                for one in held:
                    every.callback(one.lead)
        finally:
            self.end()

    def end(self) -> None:
        """The run is over: copies are thrown away, and all is as it was."""
        self._process = 0
        while self._ends:
            self._ends.pop()()
        for one in self._held:
            with suppress(OSError, ValueError):
                if one.file is not None:
                    one.file.close()
        with self._lock:
            for copy in self._copies.values():
                os.close(copy)
            self._held, self._copies = [], {}
            self._behind, self._made, self._gone = {}, set(), set()

    def covers(self, path: str, *, writes: bool) -> bool:
        """Whether this thread opens a copy of it just now, and reads nothing of the job's there."""
        if self._leads != threading.get_ident():
            return False
        return writes or os.path.realpath(path) not in self._behind

    def has_made(self, path: str) -> bool:
        """Whether the run has: it was not there before."""
        return self._is_made(os.path.realpath(path))

    # --- what stands in for functions -------------------------------------------------------------

    def _stand_in(
        self, name: str, instead: Callable[..., Any], *places: tuple[dict[Any, Any], Any]
    ) -> None:
        """For the function of that name, wherever it is kept."""
        real = pkgutil.resolve_name(name)
        before = [kept[key] for kept, key in places]

        def call(frame: FrameType, *args: Any, **kwargs: Any) -> Any:
            if os.getpid() != self._process:  # The run is over, or has forked this process.
                return real(*args, **kwargs)
            return instead(real, frame, *args, **kwargs)

        standing_in = _StandIn(name, real, call)

        def end() -> None:
            for (kept, key), was in zip(places, before, strict=True):
                if kept[key] is standing_in:  # Else the script's own is around it.
                    kept[key] = was
            for able in _SUPPORTS:
                able.discard(standing_in)

        for kept, key in places:
            kept[key] = standing_in
        for able in _SUPPORTS:
            if real in able:
                able.add(standing_in)
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
        path = _path_of(file)
        is_new, writes = not os.path.lexists(path), not {*mode}.isdisjoint("wax+")
        if opener is not None or not self._is_led(path, mode, frame):
            opened = real(file, mode, buffering, encoding, errors, newline, closefd, opener)
            self._note(path, is_new=is_new)
            return opened
        opener = _leading_to(self._copy_of(path))
        with self._leading():
            opened = real(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if writes and {*mode}.isdisjoint("b+"):
            with self._lock:
                held = [one for one in self._held if one.file is not None]
                self._held = [*held, _Held(opened, path, mode)]
        return opened

    @contextmanager
    def _leading(self) -> Iterator[None]:
        """What is opened in it is a copy."""
        self._leads, before = threading.get_ident(), self._leads
        try:
            yield
        finally:
            self._leads = before

    def _is_led(self, path: str, mode: str, frame: FrameType) -> bool:
        """Whether it is the copy that is opened, which is made if it is written first."""
        if path in self._copies and "w" not in mode and {*mode} & {"r", "+"}:
            self._fill(path)
        if path in self._copies or self._only_reads(mode, frame):
            return path in self._copies and "x" not in mode
        if "x" in mode and path not in self._gone:
            return False
        if _module_of(frame) in _MAPPERS or not self._needs_copy(path, frame):
            return False
        if "w" not in mode and path not in self._gone:
            self._begin_behind(path, is_read="+" in mode)
        return True

    @staticmethod
    def _only_reads(mode: str, frame: FrameType) -> bool:
        """Or changes the file in place, as is not led elsewhere: but for archives."""
        changes = "+" in mode and _module_of(frame) == _ARCHIVES
        return {*mode}.isdisjoint("wax") and not changes

    def _begin_behind(self, path: str, *, is_read: bool) -> None:
        """Who adds to a file begins where it ends. is_read: it may be read as well"""
        if is_read:
            _copy(path, self._copy_of(path))
            return
        with io.FileIO(self._copy_of(path), "w") as made:
            made.truncate(os.lstat(path).st_size)
        self._behind[path] = os.lstat(path).st_size

    def _fill(self, path: str) -> None:
        """What was there before the run has added something is about to be read."""
        if size := self._behind.get(path, 0):
            with io.FileIO(path) as held, io.FileIO(self._copy_of(path), "r+") as made:
                made.write(held.read(size))
            self._behind[path] = 0

    def _opening_below(
        self,
        real: Callable[..., int],
        frame: FrameType,
        path: Any,
        flags: int,
        mode: int = 0o777,
        **kwargs: Any,
    ) -> int:
        own = _path_of(path, kwargs.get("dir_fd"))
        is_new = not os.path.lexists(own)
        if own in self._gone and flags & os.O_NOFOLLOW:
            self._gone.discard(own)  # A lock, as others have it.
        elif own in self._gone and flags & os.O_CREAT and self._needs_copy(own, frame):
            return real(self._copy_of(own), flags & ~os.O_EXCL, mode)
        opened = real(path, flags, mode, **kwargs)
        self._note(own, is_new=is_new)
        return opened

    def _written_to(self, path: str) -> str:
        """Where torch is to write what it was to write to that file, from whatever thread."""
        own = _path_of(path)
        if os.getpid() == self._process and own:
            if self._needs_copy(own, None):
                return self._copy_of(own)
            if not os.path.lexists(own):
                self._made.add(own)
        return path

    def _removing(
        self, real: Callable[..., None], frame: FrameType, path: Any, **kwargs: Any
    ) -> None:
        name = _name_of(path, kwargs.get("dir_fd"))
        if _is_a(stat.S_ISDIR, name) or not self._is_the_jobs(name, frame):
            real(path, **kwargs)
            self._made.discard(name)
        else:
            self._delete(name)

    def _removing_folder(
        self, real: Callable[..., None], frame: FrameType, path: Any, **kwargs: Any
    ) -> None:
        name = _name_of(path, kwargs.get("dir_fd"))
        is_jobs = _is_a(stat.S_ISDIR, name) and self._is_the_jobs(name, frame)
        if is_jobs and all(os.path.join(name, one) in self._gone for one in os.listdir(name)):
            self._delete(name)
        else:
            real(path, **kwargs)
            self._made.discard(name)

    def _moving(
        self, real: Callable[..., None], frame: FrameType, src: Any, dst: Any, **kwargs: Any
    ) -> None:
        source = _name_of(src, kwargs.get("src_dir_fd"))
        there = _name_of(dst, kwargs.get("dst_dir_fd"))
        is_jobs, is_folder = self._is_the_jobs(source, frame), _is_a(stat.S_ISDIR, source)
        if is_folder and is_jobs:
            self._delete(source)
            if there not in self._gone:
                os.mkdir(there)
            return
        if is_folder and not self._gone.isdisjoint((there, os.path.dirname(there))):
            shutil.rmtree(source)  # The job's stays in its place.
            self._gone -= {there, os.path.dirname(there)}
            return
        is_new, is_link = not os.path.lexists(there), _is_a(stat.S_ISLNK, there)
        stays = not is_folder and os.path.lexists(source) and self._is_the_jobs(there, frame)
        if not stays and not is_jobs:
            real(src, dst, **kwargs)
            self._note(there, is_new=is_new)
            self._made.discard(source)
            return
        if not stays or (not is_link and self._needs_copy(there, frame)):
            self._fill(source)
            _copy(self._copy_of(source), self._copy_of(there))
            self._note(there, is_new=is_new)
        if is_jobs:
            self._delete(source)
        else:
            os.remove(source)

    def _making_folder(
        self, real: Callable[..., None], _: FrameType, path: Any, *args: Any, **kwargs: Any
    ) -> None:
        name = _name_of(path, kwargs.get("dir_fd"))
        if name in self._gone:
            self._gone.discard(name)
            return
        real(path, *args, **kwargs)
        self._made.add(name)

    def _making_link(
        self, real: Callable[..., None], _: FrameType, src: Any, dst: Any, *args: Any, **kwargs: Any
    ) -> None:
        name = _name_of(dst, kwargs.get("dir_fd", kwargs.get("dst_dir_fd")))
        if name in self._gone:
            self._gone.discard(name)
            return
        real(src, dst, *args, **kwargs)
        if _is_a(stat.S_ISLNK, name) or self._is_made(_name_of(src, kwargs.get("src_dir_fd"))):
            self._made.add(name)  # But another name for a file of the job's is the job's.

    # --- files ------------------------------------------------------------------------------------

    def _needs_copy(self, path: str, frame: FrameType | None) -> bool:
        """Whether the file is written elsewhere; from here on it has a copy.

        frame: that asks for it; None: it is torch's own
        """
        with self._lock:
            if path in self._copies:
                return True
            if not _is_a(stat.S_ISREG, path) or not self._is_the_jobs(path, frame):
                return False
            if len(self._copies) >= COPIES_MAX:
                raise StateMismatch(
                    f"the script writes to more than {COPIES_MAX} files that the job has",
                    means="A standby cannot keep copies of so many; the job trains on.",
                    do="Write them where job.is_shadow is false.",
                )
            with self._leading(), tempfile.TemporaryFile() as made:
                self._copies[path] = os.open(_by_descriptor(made.fileno()), os.O_RDONLY)
            return True

    def _copy_of(self, path: str) -> str:
        """A name of its copy; of one that has none its own."""
        return _by_descriptor(self._copies[path]) if path in self._copies else path

    def _delete(self, path: str) -> None:
        """As the run sees it."""
        with self._lock:
            self._behind.pop(path, None)
            if path in self._copies:
                os.close(self._copies.pop(path))
            self._gone.add(path)

    def _is_the_jobs(self, path: str, frame: FrameType | None) -> bool:
        """Whether it was there before the run, which is about to change it."""
        is_old = os.path.lexists(path) and not self._is_made(path)
        return is_old and not is_cache(path) and (frame is None or self._is_led_from(frame))

    def _is_led_from(self, frame: FrameType) -> bool:
        """Whether lines of the script's have led there, or a thread that has begun since."""
        thread = threading.current_thread()
        if thread in self._threads:
            return False
        is_main = thread is threading.main_thread()
        return bool(place_of_script(frame)) or not (is_main or is_ours(frame))

    def _is_made(self, path: str) -> bool:
        """By the run, or in a folder that it has made."""
        return not self._made.isdisjoint([path, *map(str, PurePath(path).parents)])

    def _note(self, path: str, *, is_new: bool) -> None:
        """It was opened. is_new: it was not there before"""
        if path and is_new:
            self._made.add(path)


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


def _is_a(kind: Callable[[int], bool], path: str) -> bool:
    """Whether there is such a thing under that name."""
    try:
        return kind(os.lstat(path).st_mode)
    except OSError:
        return False


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _by_descriptor(number: int) -> str:
    """A name by which an open file can be opened again."""
    return f"/proc/self/fd/{number}"


def _open_as(inside: str) -> Iterator[int]:
    """Descriptors of this process for what has that name where files are kept."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(_by_descriptor(int(name))) == inside:
                yield int(name)


def _leading_to(copy: str) -> _Opener:
    return lambda _, flags: os.open(copy, flags & ~os.O_EXCL, 0o600)


def _copy(source: str, target: str) -> None:
    """These files themselves."""
    with io.FileIO(source) as held, io.FileIO(target, "w") as made:
        shutil.copyfileobj(held, made)
