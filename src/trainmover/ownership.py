"""Folders and files that are believed only where they are our user's own.

Who could put another one in their place could read the token of a run, or be obeyed in its name. So
nothing here follows a link at the end of a path, and the owner is that of the open file itself.
A folder is removed only if it bears our mark: whatever else has its name is somebody's.
"""

import errno
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from trainmover.errors import UserError

MARK = ".trainmover-run"
_MARKED = b"A folder of trainmover. It is removed, with all that is in it, when its run is over.\n"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ALL_USERS = 2**32 - 1


class NotOurs(UserError):
    """A file or a folder that somebody else could have put there, or could change."""


# --- files ----------------------------------------------------------------------------------------


def create_file(path: Path) -> int:
    """A descriptor of a new file that only our user can read. Raises OSError if the name is taken,
    be it by a link that leads nowhere."""
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
    """A descriptor of a plain file of our user's; flags as for `os.open`. Raises OSError, and
    NotOurs for one of somebody else or a link."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _not_ours(path, "is a link") from error
        raise
    if why := _why_not(os.fstat(descriptor)):
        os.close(descriptor)
        raise _not_ours(path, why)
    return descriptor


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
    """Raise NotOurs if there is something of that name that is no plain file of our user's."""
    try:
        found = path.lstat()
    except OSError:
        return
    if why := _why_not(found):
        raise _not_ours(path, why)


def _why_not(found: os.stat_result) -> str:
    """Why this is no plain file of our user's; "" if it is."""
    if not stat.S_ISREG(found.st_mode):
        return "is no plain file"
    return "" if found.st_uid == os.geteuid() else f"belongs to {owner(found)}"


# --- folders --------------------------------------------------------------------------------------


def check_place(path: Path) -> None:
    """Raise NotOurs if a folder on the way to `path`, or `path` itself, belongs to somebody who is
    neither our user nor root: he could put another one there at any time."""
    whole = path.resolve()
    for folder in (whole, *whole.parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            found = folder.lstat()
            if not is_trusted(found):
                raise _not_ours(folder, f"belongs to {owner(found)}")


def check_private(folder: Path) -> None:
    """Raise NotOurs unless this is a folder of our user's, no link, which others cannot enter, in a
    place that nobody else can change. Raises OSError if there is none."""
    check_place(folder)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise _not_ours(folder, "is no folder")
    if found.st_uid != os.geteuid():
        raise _not_ours(folder, f"belongs to {owner(found)}")
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise _not_ours(folder, f"is open to other users (mode {mode:04o})", f"chmod 700 {folder}")


def check_unwritable(folder: Path) -> None:
    """Raise NotOurs if others could rename what is in this folder. Raises OSError."""
    check_place(folder)
    mode = folder.stat().st_mode
    if mode & _OTHERS_WRITE and not mode & stat.S_ISVTX:
        said = f"can be written by other users (mode {stat.S_IMODE(mode):04o})"
        raise _not_ours(folder, said, f"chmod go-w {folder}")


def is_trusted(found: os.stat_result) -> bool:
    """Whether its owner is our user, or root."""
    return found.st_uid in (os.geteuid(), 0) or _is_unmapped(found.st_uid)


def _is_unmapped(user: int) -> bool:
    """Whether that is the number by which a container shows users whom it does not know, such as
    its host's root."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
        mapped = sum(int(line.split()[2]) for line in lines)
        return mapped < _ALL_USERS and user == int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return False


def owner(found: os.stat_result) -> str:
    """Name the owner of a file as people do."""
    import pwd

    try:
        return f"user {pwd.getpwuid(found.st_uid).pw_name}"
    except KeyError:
        return f"user {found.st_uid}"


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
