"""A disk that fails under the real SQLite: its calls to the operating system pass through here.

    sqlite3 -> VFS of this file -> VFS of the system -> files in a temporary folder

A call may fail (no room, I/O error), hang, or be the last one of its process (`Killed`). The disk
knows which writes no sync has made durable, so it can say what a power cut leaves: `after_power`.
"""

import _sqlite3
import ctypes
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

SECTOR = 512
FULL, READ, WRITE, SYNC, TRUNCATE, DELETE = 13, *(10 | number << 8 for number in (1, 3, 4, 6, 10))
P, N, L = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
OPEN = ctypes.CFUNCTYPE(N, P, P, P, N, P)
REMOVE = ctypes.CFUNCTYPE(N, P, ctypes.c_char_p, N)
RANDOMNESS = ctypes.CFUNCTYPE(N, P, N, P)
TRANSFER = ctypes.CFUNCTYPE(N, P, P, N, L)
RESIZE = ctypes.CFUNCTYPE(N, P, L)
FLUSH = ctypes.CFUNCTYPE(N, P, N)


class Vfs(ctypes.Structure):
    """`sqlite3_vfs`."""

    _fields_ = [
        *(("version", N), ("file_bytes", N), ("path_max", N), ("next", P)),
        *(("name", ctypes.c_char_p), ("data", P), ("open", OPEN), ("delete", REMOVE)),
        *((name, P) for name in ("access", "full", "dlopen", "dlerror", "dlsym", "dlclose")),
        ("randomness", RANDOMNESS),
        *((f"rest{number}", P) for number in range(7)),
    ]


class Methods(ctypes.Structure):
    """`sqlite3_io_methods`."""

    _fields_ = [
        *(("version", P), ("close", P), ("read", TRANSFER), ("write", TRANSFER)),
        *(("truncate", RESIZE), ("sync", FLUSH)),
        *((f"rest{number}", P) for number in range(13)),
    ]


class Killed(BaseException):
    """The process is dead: nothing that it does from here on reaches a file."""


class FaultyDisk:
    """Files of one folder for one process, and memory of its supervisor; `chance` decides all.

    calls    that may be the last, so far; last: number of the one in which the process dies
    faults   what fails at present: "", "full" or "io"; odds: of each call
    lies     odds that a sync does nothing, and says nothing of that
    hang     is called in the middle of a call, now and then
    durable  name of a file -> its bytes that a power cut leaves; pending: writes since
    files    names and bytes as the process died; memory: the same of the supervisor's memory
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        self.calls = self.last = 0
        self.dead = False
        self.faults, self.odds, self.lies = "", 0.0, 0.0
        self.hang: Callable[[], None] = lambda: None
        self.synced: Callable[[str], None] = lambda name: None
        self.durable: dict[str, bytes] = {}
        self.pending: dict[str, list[tuple[int, bytes | None]]] = {}
        self.files: dict[str, bytes] = {}
        self.memory = b""
        self.descriptor = os.memfd_create("held")

    def close(self) -> None:
        os.close(self.descriptor)

    # --- calls ---

    def is_last(self) -> bool:
        """Count one call; whether the process dies in it, or is dead."""
        self.calls += not self.dead
        if not self.dead and self.calls != self.last and self.chance.random() < 0.002:
            self.hang()
        return self.dead or self.calls == self.last

    def fails(self, *, full: bool = False) -> str:
        """How this call fails, or ""."""
        may = self.faults == "io" or (full and self.faults == "full")
        return self.faults if may and self.chance.random() < self.odds else ""

    def die(self) -> None:
        """Keep the files as they are at this moment; once."""
        if not self.dead:
            self.files = {one.name: one.read_bytes() for one in self.folder.iterdir()}
            self.memory = os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)
            self.dead = True

    def part(self, count: int) -> int:
        """How much of a write is done; what one sector takes is all or nothing."""
        return self.chance.randrange(count) if count > SECTOR else self.chance.choice((0, count))

    # --- what lasts ---

    def wrote(self, name: str, offset: int, data: bytes | None) -> None:
        """None: the file ends there now."""
        self.pending.setdefault(name, []).append((offset, data))

    def sync(self, name: str) -> None:
        """All that was written to this file lasts."""
        if self.chance.random() >= self.lies:
            self.durable[name] = (self.folder / name).read_bytes()
            self.pending.pop(name, None)
            self.synced(name)

    def after_power(self) -> dict[str, bytes]:
        """Files as a power cut may leave them: of what is pending any sectors, or all to a point.

        Where a lost sector has others behind it, there are zeros, or garbage.
        """
        kept = self.chance.choice((0.0, 0.5, 0.9, 0.98, 2.0))
        filler = self.chance.choice((bytes, self.chance.randbytes))
        for name in sorted({*self.durable, *self.pending}):
            data = bytearray(self.durable.get(name, b""))
            todo = self.pending.get(name, [])
            if kept > 1:
                todo = todo[: self.chance.randrange(len(todo) + 1)]
            for offset, piece in todo:
                if piece is None:
                    del data[offset:]
                    continue
                for at in range(0, len(piece), SECTOR):
                    part, begin = piece[at : at + SECTOR], offset + at
                    if self.chance.random() < kept:
                        data += filler(max(0, begin - len(data)))
                        data[begin : begin + len(part)] = part
            self.durable[name] = bytes(data)
        self.pending = {}
        return dict(self.durable)

    def after_death(self, files: dict[str, bytes], memory: bytes) -> "FaultyDisk":
        """What the next process finds, at another path: this one may still close what it had."""
        new = FaultyDisk(self.folder.with_name(f"{int(self.folder.name) + 1}"), self.chance)
        new.folder.mkdir()
        for name, data in files.items():
            (new.folder / name).write_bytes(data)
        os.write(new.descriptor, memory)
        new.durable, new.pending = self.durable, self.pending
        new.faults, new.odds, new.lies = self.faults, self.odds, self.lies
        self.close()
        return new

    # --- who uses it ---

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """SQLite, the memory and the lock of a journal use this disk.

        The lock's word never fails: it is written in place, and who finds none is refused by
        machines that know more.
        """
        real_write, real_truncate = os.pwrite, os.ftruncate

        def write(descriptor: int, data: bytes, offset: int) -> int:
            if self.is_last():
                if not self.dead:
                    real_write(descriptor, data[: self.part(len(data))], offset)
                self.die()
                raise Killed
            return real_write(descriptor, data, offset)

        def truncate(descriptor: int, size: int) -> None:
            if self.is_last():
                self.die()
                raise Killed
            real_truncate(descriptor, size)

        with (
            mock.patch.object(os, "pwrite", write),
            mock.patch.object(os, "ftruncate", truncate),
            shim().used_by(self),
        ):
            yield


class Shim:
    """The VFS between SQLite and the system's. One per process: SQLite keeps what it was given."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.sqlite3_vfs_find.restype = P
        library.sqlite3_vfs_register.argtypes = [P, N]
        library.sqlite3_vfs_unregister.argtypes = [P]
        library.sqlite3_randomness.argtypes = [N, P]
        self.library = library
        self.place = library.sqlite3_vfs_find(None)
        self.system = Vfs.from_address(self.place)
        self.vfs = Vfs.from_buffer_copy(self.system)
        self.vfs.version, self.vfs.name, self.vfs.next = 1, b"faulty", None
        self.vfs.open, self.vfs.delete = OPEN(self.open), REMOVE(self.delete)
        self.vfs.randomness = RANDOMNESS(self.randomness)
        self.methods: dict[int, Methods] = {}
        self.opened: dict[int, tuple[FaultyDisk, str, Methods]] = {}
        self.disk: FaultyDisk | None = None

    @contextmanager
    def used_by(self, disk: FaultyDisk) -> Iterator[None]:
        self.disk = disk
        self.library.sqlite3_vfs_register(ctypes.addressof(self.vfs), 1)
        self.library.sqlite3_randomness(0, None)  # It begins anew, with ours.
        try:
            yield
        finally:
            self.library.sqlite3_vfs_unregister(ctypes.addressof(self.vfs))
            self.library.sqlite3_randomness(0, None)

    def open(self, _: int, name: int, file: int, flags: int, out: int) -> int:
        """SQLite keeps the pointer to the name: it goes on as it came."""
        assert self.disk is not None
        rc = int(self.system.open(self.place, name, file, flags, out))
        given = P.from_address(file)
        if given.value and name:
            theirs = Methods.from_address(given.value)
            if given.value not in self.methods:
                ours = self.methods[given.value] = Methods.from_buffer_copy(theirs)
                ours.read, ours.write = TRANSFER(self.read), TRANSFER(self.write)
                ours.truncate, ours.sync = RESIZE(self.truncate), FLUSH(self.sync)
            given.value = ctypes.addressof(self.methods[given.value])
            path = os.fsdecode(ctypes.string_at(name))
            self.opened[file] = self.disk, os.path.basename(path), theirs
        return rc

    def delete(self, _: int, name: bytes, durably: int) -> int:
        disk, path = self.disk, Path(os.fsdecode(name))
        assert disk is not None
        if path.parent != disk.folder:
            return DELETE  # By a process that is dead.
        if disk.is_last():
            disk.die()
            return DELETE
        rc = int(self.system.delete(self.place, name, durably))
        disk.durable.pop(path.name, None)
        disk.pending.pop(path.name, None)
        return rc

    def randomness(self, _: int, count: int, out: int) -> int:
        assert self.disk is not None
        ctypes.memmove(out, self.disk.chance.randbytes(count), count)
        return count

    def read(self, file: int, data: int, count: int, offset: int) -> int:
        disk, _, real = self.opened[file]
        failing = not disk.dead and disk.fails()
        return READ if failing else int(real.read(file, data, count, offset))

    def write(self, file: int, data: int, count: int, offset: int) -> int:
        disk, name, real = self.opened[file]
        rc, done = 0, count
        is_last = disk.is_last()
        if is_last:
            rc, done = WRITE, 0 if disk.dead else disk.part(count)
        elif why := disk.fails(full=True):
            rc, done = FULL if why == "full" else WRITE, min(disk.part(count), count - 1)
        if done:
            real.write(file, data, done, offset)
            disk.wrote(name, offset, ctypes.string_at(data, done))
        if is_last:
            disk.die()
        return rc

    def truncate(self, file: int, size: int) -> int:
        disk, name, real = self.opened[file]
        if disk.is_last():
            disk.die()
            return TRUNCATE
        if disk.fails():
            return TRUNCATE
        disk.wrote(name, size, None)
        return int(real.truncate(file, size))

    def sync(self, file: int, _: int) -> int:
        disk, name, _real = self.opened[file]
        if disk.is_last():
            disk.die()
            return SYNC
        if disk.fails():
            return SYNC
        disk.sync(name)
        return 0


_shims: list[Shim] = []


def shim() -> Shim:
    """Raises AttributeError where SQLite is a part of the interpreter that cannot be reached."""
    if not _shims:
        library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        assert library.sqlite3_vfs_find
        _shims.append(Shim(library))
    return _shims[0]
