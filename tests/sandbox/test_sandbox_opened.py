"""Files that a run in the sandbox opens: newer ones than the rank found, and writes, are named."""

import os
import pickle
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from trainmover.errors import StateMismatch
from trainmover.sandbox.process.opened import Opened
from trainmover.torch_internals import compiling


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
    (tmp_path / "log.txt").write_text("new")
    assert not opened.written
    (tmp_path / "log.txt").write_text("lr 0.1")
    first = opened.written
    assert f"changes {tmp_path}/log.txt in place (test_sandbox_opened.py line " in first
    with open(tmp_path / "more", "a"):
        pass
    assert opened.written == first


def test_temporary_files_are_nobodys(opened: Opened) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
    assert not opened.written


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody in this process has asked yet where temporary files go."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_once_lock", threading.Lock())
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")  # torch sets it anew: put back whatever it is
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")


@pytest.mark.parametrize("asks", [tempfile.gettempdir, compiling.folder])
@pytest.mark.usefixtures("unasked")
def test_who_opens_a_file_while_it_holds_a_lock_is_not_waited_for(
    opened: Opened, asks: Callable[[], object]
) -> None:
    """To find the folder, Python tries some out, and lets nobody else ask meanwhile."""
    asking = threading.Thread(target=lambda: asks(), daemon=True)  # As a line of a script would.
    asking.start()
    asking.join(10)
    assert not asking.is_alive()
    assert not opened.written


@pytest.mark.usefixtures("unasked")
def test_whether_a_file_is_temporary_is_known_before_anybody_has_asked(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainmover.sandbox.process.opened._TEMPORARY", ())
    monkeypatch.setenv("TMPDIR", str(tmp_path / "passing"))
    (tmp_path / "passing").mkdir()
    for _ in range(2):
        (tmp_path / "passing" / "x").write_text("x")
        (tmp_path / "log.txt").touch()
    assert not opened.written
    (tmp_path / "log.txt").write_text("x")
    assert f"changes {tmp_path}/log.txt" in opened.written
    assert tempfile.tempdir is None


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.usefixtures("unasked")
def test_what_torch_has_compiled_may_be_read_whoever_chose_the_folder(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    if named:
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    compiled = compiling.folder() / "graph"
    compiled.touch()
    if not named:
        monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")  # As between two runs of a script.
    opened.begin(time.time_ns() - 60_000_000_000)
    compiled.read_bytes()
    assert not opened.newer
    assert ("TORCHINDUCTOR_CACHE_DIR" in os.environ) is named
