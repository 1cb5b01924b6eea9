"""Regular files: read what others may have written without a hang, and tell who can write it."""

import errno
import os
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OWN_LEVELS = 3
"""A file, its folder, and the folder around that: whoever reads them has written all three."""


def open_regular(path: Path) -> FileIO:
    """Open a file for reading. Neither the file nor its folder may be a link.

    Returns at once whatever lies there. Raises OSError, also for a link, a FIFO, a socket or a
    device.
    """
    if not stat.S_ISDIR(path.parent.lstat().st_mode):
        raise _refusal("its folder is a link", path)
    _check_regular(path.lstat(), path)
    file = FileIO(path, opener=_open_without_waiting)
    try:
        _check_regular(os.fstat(file.fileno()), path)
    except OSError:
        file.close()
        raise
    return file


def size_of_regular(path: Path) -> int:
    """Return the size in bytes of a file that `open_regular` would open, unopened. OSError."""
    if not stat.S_ISDIR(path.parent.lstat().st_mode):
        raise _refusal("its folder is a link", path)
    found = path.lstat()
    _check_regular(found, path)
    return found.st_size


def read_regular(path: Path, bytes_max: int) -> bytes:
    """Return all bytes of a file that `open_regular` opens. OSError, also if there are more."""
    with open_regular(path) as file:
        data = bytearray()
        while part := file.read(bytes_max + 1 - len(data)):
            data += part
            if len(data) > bytes_max:
                raise _refusal(f"it has more than {bytes_max} bytes", path)
        return bytes(data)


def foreign_writer(path: Path) -> str:
    """Say why somebody else may have written the file at `path`; "" if nobody else can.

    The file and the two folders around it must belong to this user, all folders above to this
    user or root, and nobody else may write to any of them. In a sticky folder, such as /tmp,
    nobody can replace what belongs to this user.
    """
    try:
        for level, each in enumerate(_with_parents(path.resolve(strict=True))):
            if why := _why_foreign(each, above=level >= _OWN_LEVELS):
                return why
    except OSError as error:
        return f"{path} cannot be looked at ({error.strerror})"
    return ""


def _with_parents(path: Path) -> Iterator[Path]:
    yield path
    yield from path.parents


def _why_foreign(path: Path, *, above: bool) -> str:
    found = path.stat()
    owners = {os.geteuid(), 0} if above else {os.geteuid()}
    if found.st_uid not in owners:
        return f"{path} belongs to another user (uid {found.st_uid})"
    sticky = above and found.st_mode & stat.S_ISVTX
    if found.st_mode & _OTHERS_WRITE and not sticky:
        return f"others can write to {path} (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def _check_regular(found: os.stat_result, path: Path) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise _refusal("it is a link", path)
    if not stat.S_ISREG(found.st_mode):
        raise _refusal("it is no regular file", path)


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _refusal(why: str, path: Path) -> OSError:
    return OSError(errno.EINVAL, why, str(path))
