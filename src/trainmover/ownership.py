# SPDX-License-Identifier: Apache-2.0
"""Files and folders: who could have put them there, who can change them, and whether they are ours.

Who could put another file in the place of one of ours could read the token of a run, or be obeyed
in its name. So nothing here follows a link at the end of a path, waits for a FIFO or a device, or
trusts a name where it can ask the open file. There are two kinds: files of our user's own
(`open_file`), and files that others may have written, whose bytes are only data (`open_regular`).
A folder is removed only if it bears our mark: whatever else has its name is somebody's.
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path

from trainmover.errors import UserError

MARK = ".trainmover-run"
_MARKED = b"A folder of trainmover. It is removed, with all that is in it, when its run is over.\n"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ALL_USERS = 2**32 - 1
_OWN_LEVELS = 3
"""A file, its folder, and the folder around that: whoever reads them has written all three."""


class NotOurs(UserError):
    """A file or a folder that somebody else could have put there, or could change."""


# --- files of our user's own ----------------------------------------------------------------------


def create_file(path: Path) -> int:
    """Return a descriptor of a new file that only our user can read. Raises OSError if the name is
    taken, be it by a link that leads nowhere."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def write_new(path: Path, data: bytes) -> None:
    """Write a new file that only our user can read, or none. Raises as `create_file` does."""
    descriptor = create_file(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError:
        path.unlink()
        raise


def open_file(path: Path, flags: int) -> int:
    """Return a descriptor of a regular file of our user's; flags as for `os.open`. Raises OSError,
    and NotOurs for one of somebody else, a link, a FIFO, a socket or a device."""
    return _open(path, flags, _check_ours)


def read_file(path: Path) -> bytes:
    """Read a file of our user's. Raises as `open_file` does."""
    with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
        return file.read()


def write_file(path: Path, data: bytes) -> None:
    """Write a file for our user only, over what was in it. Raises as `open_file` does."""
    with os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT), "wb") as file:
        file.truncate()  # Not as it is opened: then it is not known yet whose it is.
        file.write(data)


def check_file(path: Path) -> None:
    """Raise NotOurs if there is something of that name that is no regular file of our user's."""
    with suppress(OSError):
        _check_ours(path.lstat(), path)


def _check_ours(found: os.stat_result, path: Path) -> None:
    if why := _why_irregular(found) or _why_foreign(found):
        raise _not_ours(path, why)


# --- files that others may have written -----------------------------------------------------------


def open_regular(path: Path) -> FileIO:
    """Open a file for reading, whoever has written it. Neither it nor its folder may be a link.

    Returns at once whatever lies there. Raises OSError, also for a link, a FIFO, a socket or a
    device.
    """
    _check_folder(path)
    return FileIO(_open(path, os.O_RDONLY, _check_regular))


def size_of_regular(path: Path) -> int:
    """Return the size in bytes of a file that `open_regular` would open, unopened. OSError."""
    _check_folder(path)
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
                raise OSError(errno.EINVAL, f"it has more than {bytes_max} bytes", str(path))
        return bytes(data)


def foreign_writer(path: Path) -> str:
    """Say why somebody else may have written the file at `path`; "" if nobody else can.

    The file and the two folders around it must belong to this user, all folders above to this
    user or root, and nobody else may write to any of them. In a sticky folder, such as /tmp,
    nobody can replace what belongs to this user.
    """
    try:
        whole = path.resolve(strict=True)
        for level, each in enumerate((whole, *whole.parents)):
            above = level >= _OWN_LEVELS
            found = each.stat()
            if why := _why_foreign(found, or_root=above) or _why_writable(
                found, unless_sticky=above
            ):
                return f"{each} {why}"
    except OSError as error:
        return f"{path} cannot be looked at ({error.strerror})"
    return ""


def _check_folder(path: Path) -> None:
    if not stat.S_ISDIR(path.parent.lstat().st_mode):
        raise OSError(errno.EINVAL, "its folder is a link", str(path))


def _check_regular(found: os.stat_result, path: Path) -> None:
    if why := _why_irregular(found):
        raise OSError(errno.EINVAL, f"it {why}", str(path))


def _open(path: Path, flags: int, check: Callable[[os.stat_result, Path], None]) -> int:
    """Return a descriptor of what `check` lets pass, by its name and, as it is open, by itself."""
    with suppress(FileNotFoundError):
        check(path.lstat(), path)  # A device may do something as soon as it is opened.
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        check(os.fstat(descriptor), path)
    except (OSError, NotOurs):
        os.close(descriptor)
        raise
    return descriptor


# --- folders --------------------------------------------------------------------------------------


def check_place(path: Path) -> None:
    """Raise NotOurs if a folder on the way to `path`, or `path` itself, belongs to somebody who is
    neither our user nor root: he could put another one there at any time."""
    whole = path.resolve()
    for folder in (whole, *whole.parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            if why := _why_foreign(folder.lstat(), or_root=True):
                raise _not_ours(folder, why)


def check_private(folder: Path) -> None:
    """Raise NotOurs unless this is a folder of our user's, no link, which others cannot enter, in a
    place that nobody else can change. Raises OSError if there is none."""
    check_place(folder)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise _not_ours(folder, "is no folder")
    if why := _why_foreign(found):
        raise _not_ours(folder, why)
    if why := why_open(found):
        raise _not_ours(folder, why, f"chmod 700 {folder}")


def check_unwritable(folder: Path) -> None:
    """Raise NotOurs if others could rename what is in this folder. Raises OSError."""
    check_place(folder)
    if why := _why_writable(folder.stat(), unless_sticky=True):
        raise _not_ours(folder, why, f"chmod go-w {folder}")


# --- owners and modes -----------------------------------------------------------------------------


def is_trusted(found: os.stat_result) -> bool:
    """Whether its owner is our user, or root."""
    return found.st_uid in (os.geteuid(), 0) or _is_unmapped(found.st_uid)


def why_open(found: os.stat_result) -> str:
    """Say that others can read, write or enter it; "" if they cannot."""
    mode = stat.S_IMODE(found.st_mode)
    return f"is open to other users (mode {mode:04o})" if mode & _OTHERS else ""


def owner(found: os.stat_result) -> str:
    """Name the owner of a file as people do."""
    import pwd

    try:
        return f"user {pwd.getpwuid(found.st_uid).pw_name}"
    except KeyError:
        return f"user {found.st_uid}"


def _why_foreign(found: os.stat_result, *, or_root: bool = False) -> str:
    ours = is_trusted(found) if or_root else found.st_uid == os.geteuid()
    return "" if ours else f"belongs to {owner(found)}"


def _why_writable(found: os.stat_result, *, unless_sticky: bool) -> str:
    mode = stat.S_IMODE(found.st_mode)
    if not mode & _OTHERS_WRITE or (unless_sticky and mode & stat.S_ISVTX):
        return ""
    return f"can be written by other users (mode {mode:04o})"


def _why_irregular(found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return "is a link"
    return "" if stat.S_ISREG(found.st_mode) else "is no regular file"


def _is_unmapped(user: int) -> bool:
    """Whether that is the number by which a container shows users whom it does not know, such as
    its host's root."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
        mapped = sum(int(line.split()[2]) for line in lines)
        return mapped < _ALL_USERS and user == int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return False


def _not_ours(path: Path, said: str, do: str = "") -> NotOurs:
    return NotOurs(
        f"{path} {said}.",
        means="Others could read the run's secrets or change its files: nothing was done.",
        do=do or "Use a place of your own: TRAINMOVER_HOME, --run-dir, --journal or --token-file.",
    )


# --- the mark -------------------------------------------------------------------------------------


def mark(folder: Path) -> None:
    """Have it removed by `remove_marked`. For a folder that was just made, or is empty."""
    with suppress(FileExistsError):
        write_new(folder / MARK, _MARKED)


def is_marked(folder: Path) -> bool:
    """Whether this is a folder, and not a link to one, that we made."""
    try:
        is_folder = stat.S_ISDIR(folder.lstat().st_mode)
        return is_folder and read_file(folder / MARK) == _MARKED
    except (OSError, NotOurs):
        return False


def remove_marked(folder: Path) -> None:
    """Remove a folder that we made, with all that is in it; leave any other as it is.

    The mark goes last: what is left of a folder, after a crash too, is still known for ours.
    """
    if not is_marked(folder):
        return
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name != MARK:
                os.unlink(entry.path)
        if os.listdir(folder) == [MARK]:
            os.unlink(folder / MARK)
            folder.rmdir()
