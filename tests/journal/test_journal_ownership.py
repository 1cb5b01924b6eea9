"""A journal and its lock are our own files: no link of somebody else leads to another one."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmover.errors import UserError
from trainmover.journal import Journal
from trainmover.journal.aside import keep_aside
from trainmover.launch.options import RunOptions
from trainmover.launch.place import _run
from trainmover.launch.runs import RunDirectory
from trainmover.protocol.messages import JobSpec
from trainmover.server.run import bind

SPEC = JobSpec(run_id="r", argv=["train.py"])
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


def made(path: Path) -> Path:
    Journal.create(path, SPEC).close()
    return path


ACTS: list[Callable[[Path], object]] = [Journal.take_over, keep_aside]


def test_a_lock_that_is_a_link_is_not_written_through(tmp_path: Path, victim: Path) -> None:
    path = tmp_path / "run.db"
    (tmp_path / "run.db.lock").symlink_to(victim)
    with pytest.raises(UserError, match=r"run.db.lock is a link"):
        Journal.create(path, SPEC)
    assert not path.exists()
    (tmp_path / "run.db.lock").unlink()
    made(path)
    for act in ACTS:
        (tmp_path / "run.db.lock").symlink_to(victim)
        with pytest.raises(UserError, match=r"run.db.lock is a link"):
            act(path)
        (tmp_path / "run.db.lock").unlink()
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("part", ["", "-wal", "-shm"])
def test_no_journal_is_made_through_a_link(tmp_path: Path, part: str) -> None:
    (tmp_path / f"run.db{part}").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"is a link|exists already"):
        Journal.create(tmp_path / "run.db", SPEC)
    assert not (tmp_path / "nowhere").exists()


def test_the_link_itself_is_the_name_of_a_runs_journal(tmp_path: Path) -> None:
    """What it leads to would be made elsewhere."""
    (tmp_path / "run.db").symlink_to(tmp_path / "nowhere")
    directory = RunDirectory.create("r", tmp_path / "run")
    options = RunOptions(argv=["train.py"], journal=tmp_path / "run.db")
    with bind("127.0.0.1:0", "It") as control, bind("127.0.0.1:0", "It") as api:
        run = _run(options, directory, directory.token_file, control, api, None)
    assert run.journal == str(tmp_path / "run.db")


def test_a_lock_that_has_been_exchanged_is_not_removed(tmp_path: Path, victim: Path) -> None:
    lock = tmp_path / "run.db.lock"
    with Journal.create(tmp_path / "run.db", SPEC):
        lock.unlink()
        lock.symlink_to(victim)
    assert lock.is_symlink()


def test_no_file_beside_an_old_journal_is_replaced(tmp_path: Path) -> None:
    path = made(tmp_path / "run.db")
    (tmp_path / "run.db-wal").touch()
    (tmp_path / "run.db.1-wal").write_text("precious")
    assert keep_aside(path) == tmp_path / "run.db.2"
    assert (tmp_path / "run.db.1-wal").read_text() == "precious"


@as_root
@pytest.mark.parametrize("part", [".lock", "-wal", "-shm"])
def test_no_file_of_another_user_is_written_to(tmp_path: Path, part: str) -> None:
    theirs = tmp_path / f"run.db{part}"
    theirs.write_text("of nobody")
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(UserError, match=f"run.db{part} belongs to user"):
        Journal.create(tmp_path / "run.db", SPEC)
    assert theirs.read_text() == "of nobody"


@as_root
def test_a_journal_of_another_user_is_not_taken_over(tmp_path: Path) -> None:
    path = made(tmp_path / "run.db")
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(UserError, match=r"run.db belongs to user"):
        Journal.take_over(path)
