"""Runs are found while they live, and what dead ones left is removed."""

import os
import socket
import stat
from pathlib import Path

import msgspec
import pytest

from trainmover.errors import UserError
from trainmover.launch.runs import (
    Run,
    RunDirectory,
    find_run,
    live_runs,
    process_started,
    read_run,
    runs_home,
)

pytestmark = pytest.mark.usefixtures("own_home")


def test_the_directory_of_a_run_that_died_is_explained(own_home: Path) -> None:
    directory = published("mine")
    run = read_run(directory.path)
    assert run is not None
    directory.keep(msgspec.structs.replace(run, started=run.started + 1))
    (directory.path / "run.json").unlink()
    with pytest.raises(UserError, match="has died") as refused:
        RunDirectory.create("mine")
    assert "--resume" in refused.value.do


def published(name: str = "", pid: int | None = None, host: str = "") -> RunDirectory:
    return published_in(RunDirectory.create(name), pid, host)


def published_in(directory: RunDirectory, pid: int | None = None, host: str = "") -> RunDirectory:
    started = process_started(os.getpid()) or 0
    directory.publish(
        Run(
            run_id=directory.run_id,
            api_url="http://127.0.0.1:1",
            host=host or socket.gethostname(),
            pid=os.getpid() if pid is None else pid,
            started=started,
            directory=str(directory.path),
            token_file=str(directory.token_file),
            journal="",
        )
    )
    return directory


def test_the_only_run_is_found_and_files_are_private(own_home: Path) -> None:
    directory = published()
    directory.write_token()
    assert find_run().run_id == directory.run_id
    assert find_run(directory.run_id).run_id == directory.run_id
    assert find_run(directory=directory.path).run_id == directory.run_id
    assert stat.S_IMODE(directory.token_file.stat().st_mode) == 0o600
    for path in (own_home, directory.path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_none_and_several_are_told_apart() -> None:
    with pytest.raises(UserError, match="No run is alive"):
        find_run()
    published("one")
    published("two")
    with pytest.raises(UserError, match="2 runs are alive: one, two"):
        find_run()
    with pytest.raises(UserError, match="Run three is not alive"):
        find_run("three")
    assert find_run("two").run_id == "two"


def test_what_a_dead_run_left_behind_is_removed() -> None:
    dead = published("dead", pid=2**22 + 1)
    (runs_home() / "just-made").mkdir()
    old = runs_home() / "left-over"
    old.mkdir()
    os.utime(old, (0, 0))
    assert live_runs() == []
    assert not dead.path.exists()
    assert not old.exists()
    assert (runs_home() / "just-made").exists()


def test_a_run_that_is_just_being_published_is_never_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = RunDirectory.create("one")
    read = Path.read_bytes

    def read_too_early(path: Path) -> bytes:
        try:
            return read(path)
        finally:
            published_in(directory)

    monkeypatch.setattr(Path, "read_bytes", read_too_early)
    assert live_runs() == []
    assert [run.run_id for run in live_runs()] == ["one"]


def test_a_run_of_another_host_is_left_alone() -> None:
    theirs = published("theirs", pid=2**22 + 1, host="another")
    assert live_runs() == []
    assert theirs.path.exists()


def test_a_reused_pid_is_not_the_run() -> None:
    directory = published("one")
    run = read_run(directory.path)
    assert run is not None
    directory.publish(msgspec.structs.replace(run, started=1))
    assert read_run(directory.path) is None


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    published("one")
    with pytest.raises(UserError, match="exists already"):
        RunDirectory.create("one")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match="exists already"):
        RunDirectory.create(path=tmp_path / "mine")
    (tmp_path / "empty").mkdir()
    assert RunDirectory.create(path=tmp_path / "empty").run_id == "empty"


@pytest.mark.parametrize("name", ["../out", "a/b", "..", ".", "-x", "x" * 200, "a b"])
def test_a_run_id_is_a_plain_name(name: str) -> None:
    with pytest.raises(UserError, match="cannot be the name"):
        RunDirectory.create(name)
