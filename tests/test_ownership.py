"""Files and folders: what is believed is our user's own, and nothing of others is followed or
waited for."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmover import ownership
from trainmover.errors import UserError
from trainmover.launch.runs import RunDirectory, find_run, kept_run, live_runs, read_run
from trainmover.ownership import (
    NotOurs,
    foreign_writer,
    open_regular,
    read_regular,
    size_of_regular,
)

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


def given_away(path: Path, mode: int = 0o755) -> Path:
    """A folder of another user."""
    path.mkdir()
    path.chmod(mode)
    os.chown(path, NOBODY, NOBODY)
    return path


def test_a_new_file_is_private_and_takes_no_name_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "token"
    os.close(ownership.create_file(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        ownership.create_file(path)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        ownership.create_file(tmp_path / "link")
    assert not (tmp_path / "nowhere").exists()


def test_no_link_and_no_pipe_is_opened(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, why in (
        ("link", "is a link"),
        ("pipe", "is no regular file"),
        ("folder", "is no regular file"),
    ):
        with pytest.raises(NotOurs, match=why):
            ownership.read_file(tmp_path / name)
        with pytest.raises(NotOurs, match=why):
            ownership.check_file(tmp_path / name)
    with pytest.raises(NotOurs, match="is a link"):
        ownership.write_file(tmp_path / "link", b"x")
    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_what_is_ours_is_written_and_read(tmp_path: Path) -> None:
    ownership.write_file(tmp_path / "one", b"a longer text")
    ownership.write_file(tmp_path / "one", b"short")
    assert ownership.read_file(tmp_path / "one") == b"short"
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o600
    ownership.check_file(tmp_path / "one")
    ownership.check_file(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        ownership.read_file(tmp_path / "none")


@as_root
def test_a_file_of_another_user_is_neither_read_nor_written(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"of nobody")
    os.chown(path, NOBODY, NOBODY)
    acts: list[Callable[[], object]] = [
        lambda: ownership.read_file(path),
        lambda: ownership.write_file(path, b"x"),
        lambda: ownership.check_file(path),
    ]
    for act in acts:
        with pytest.raises(NotOurs, match="belongs to user"):
            act()
    assert path.read_bytes() == b"of nobody"


@as_root
@pytest.mark.usefixtures("own_home")
@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_nothing_is_started_in_the_folder_of_another_user(tmp_path: Path, below: str) -> None:
    theirs = given_away(tmp_path / "theirs", 0o700)
    place = theirs / below
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o700)
    (tmp_path / "link").symlink_to(place)
    for path in (place, place / "new", tmp_path / "link"):
        with pytest.raises(UserError, match=f"{theirs} belongs to user") as refused:
            RunDirectory.create(path=path)
        assert "--run-dir" in refused.value.do
    assert not any(path.is_file() for path in theirs.rglob("*"))


@as_root
def test_no_home_of_another_user_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = given_away(tmp_path / "theirs", 0o777)
    monkeypatch.setenv("TRAINMOVER_HOME", str(theirs))
    for act in (RunDirectory.create, live_runs, find_run):
        with pytest.raises(UserError, match="belongs to user"):
            act()
    assert list(theirs.iterdir()) == []
    monkeypatch.setenv("TRAINMOVER_HOME", str(tmp_path))
    given_away(tmp_path / "runs", 0o777)
    with pytest.raises(UserError, match=f"{tmp_path}/runs belongs to user"):
        live_runs()


@as_root
def test_a_run_of_another_user_is_none_of_ours(tmp_path: Path) -> None:
    theirs = given_away(tmp_path / "theirs", 0o700)
    (theirs / "run.json").write_text("{}")
    for act in (read_run, kept_run, lambda path: find_run(directory=path)):
        with pytest.raises(UserError, match=f"{theirs} belongs to user"):
            act(theirs)


@as_root
def test_a_folder_of_another_user_among_runs_is_passed_over(own_home: Path) -> None:
    ours = RunDirectory.create("ours")
    given_away(own_home / "runs" / "theirs", 0o700)
    os.utime(own_home / "runs" / "theirs", (0, 0))
    assert live_runs() == []
    assert ours.path.exists()
    assert (own_home / "runs" / "theirs").exists()


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
    assert foreign_writer(file).startswith(f"{path} can be written by other users (mode ")


def test_folders_above_count_too_but_for_sticky_ones(file: Path) -> None:
    above = file.parents[2]
    above.chmod(0o777)
    assert foreign_writer(file).startswith(f"{above} can be written by other users ")
    above.chmod(0o1777)
    assert foreign_writer(file) == ""


@as_root
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_what_belongs_to_others_is_named(file: Path, level: int) -> None:
    path = [file, *file.parents][level]
    os.chown(path, NOBODY, -1)
    try:
        assert foreign_writer(file).startswith(f"{path} belongs to user ")
    finally:
        os.chown(path, os.geteuid(), -1)


def test_what_is_not_there_cannot_be_looked_at(file: Path) -> None:
    file.unlink()
    assert "cannot be looked at (No such file or directory)" in foreign_writer(file)
