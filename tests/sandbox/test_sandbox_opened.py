"""Files that a run in the sandbox opens: newer ones than the rank found, and writes, are named."""

import os
import pickle
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from trainmover.errors import StateMismatch
from trainmover.sandbox.opened import Opened


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Of a rank that began its first step a minute ago."""
    opened = Opened()
    opened.begin(time.time_ns() - 60_000_000_000)
    yield opened
    opened.end()


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "snapshot.pt"
    torch.save({"epoch": 3}, path)
    return path


def test_a_snapshot_written_since_is_named_with_the_line(opened: Opened, snapshot: Path) -> None:
    torch.load(snapshot)
    assert f"reads {snapshot} (test_sandbox_opened.py line " in opened.newer
    with pytest.raises(StateMismatch, match="it would begin elsewhere than the rank did"):
        opened.check()


@pytest.mark.parametrize("reads", ["open", "path", "descriptor", "mapped"])
def test_however_it_is_read(opened: Opened, snapshot: Path, reads: str) -> None:
    if reads == "open":
        with open(os.fsencode(snapshot), "rb"):
            pass
    elif reads == "path":
        snapshot.read_bytes()
    elif reads == "descriptor":
        os.close(os.open(snapshot, os.O_RDONLY))
    else:
        torch.load(snapshot, mmap=True)
    assert opened.newer


def test_what_was_there_before_the_first_step_may_be_read(opened: Opened, snapshot: Path) -> None:
    old = time.time() - 120
    os.utime(snapshot, (old, old))
    torch.load(snapshot)
    opened.check()


def test_what_the_run_itself_has_written_may_be_read(opened: Opened, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_bytes(pickle.dumps(1))
    assert pickle.loads(own.read_bytes()) == 1
    opened.check()


def test_each_run_has_its_own(opened: Opened, snapshot: Path) -> None:
    torch.load(snapshot)
    opened.begin(time.time_ns())
    assert not opened.newer


def test_outside_of_runs_nothing_is_looked_at(opened: Opened, snapshot: Path) -> None:
    opened.end()
    torch.load(snapshot)
    assert not opened.newer


def test_what_is_missing_is_no_file(opened: Opened, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open(tmp_path / "none")  # noqa: SIM115
    assert not opened.newer


def test_a_write_is_named_once(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    (tmp_path / "log.txt").write_text("lr 0.1")
    first = opened.written
    assert f"writes to {tmp_path}/log.txt (test_sandbox_opened.py line " in first
    with open(tmp_path / "more", "a"):
        pass
    assert opened.written == first


def test_temporary_files_are_nobodys(opened: Opened) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
    assert not opened.written
