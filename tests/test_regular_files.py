"""Files that others may have written: they are read without a hang, and told from our own."""

import os
import socket
from pathlib import Path

import pytest

from trainmover.regular_files import foreign_writer, open_regular, read_regular, size_of_regular


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kept" / "step" / "file"
    path.parent.mkdir(parents=True, mode=0o755)
    path.write_bytes(b"state")
    path.chmod(0o644)
    return path


def test_a_regular_file_is_read(file: Path) -> None:
    with open_regular(file) as opened:
        assert opened.read() == b"state"
    assert (size_of_regular(file), read_regular(file, 5)) == (5, b"state")


def as_fifo(path: Path) -> None:
    os.mkfifo(path)


def as_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # The name of a socket must be short.
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path.name)
    os.chdir(here)


def as_endless_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def as_link_out(path: Path) -> None:
    (path.parents[2] / "secret").write_bytes(b"state")
    path.symlink_to("../../secret")


def as_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [as_fifo, as_socket, as_endless_link, as_link_out, as_folder])
def test_anything_else_is_refused_at_once(file: Path, make) -> None:
    file.unlink()
    make(file)
    for reads in (open_regular, size_of_regular, lambda path: read_regular(path, 10)):
        with pytest.raises(OSError, match=r"it is a link|it is no regular file"):
            reads(file)


def test_a_folder_that_is_a_link_is_refused(file: Path) -> None:
    file.parent.rename(file.parents[2] / "elsewhere")
    file.parent.symlink_to("../elsewhere")
    with pytest.raises(OSError, match="its folder is a link"):
        open_regular(file)


def test_no_more_is_read_than_allowed(file: Path) -> None:
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_regular(file, 4)


def test_what_only_we_can_write_is_ours(file: Path) -> None:
    assert foreign_writer(file) == ""


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_can_write_is_named(file: Path, level: int, mode: int) -> None:
    path = [file, *file.parents][level]
    path.chmod(path.stat().st_mode | mode)
    assert foreign_writer(file).startswith(f"others can write to {path} (mode ")


def test_folders_above_count_too_but_for_sticky_ones(file: Path) -> None:
    above = file.parents[2]
    above.chmod(0o777)
    assert foreign_writer(file).startswith(f"others can write to {above} ")
    above.chmod(0o1777)
    assert foreign_writer(file) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_what_belongs_to_others_is_named(file: Path, level: int) -> None:
    path = [file, *file.parents][level]
    os.chown(path, 65534, -1)
    try:
        assert foreign_writer(file) == f"{path} belongs to another user (uid 65534)"
    finally:
        os.chown(path, os.geteuid(), -1)


def test_what_is_not_there_cannot_be_looked_at(file: Path) -> None:
    file.unlink()
    assert "cannot be looked at (No such file or directory)" in foreign_writer(file)
