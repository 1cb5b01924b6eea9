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


def elsewhere(path: Path, run_id: str = "", pid: int | None = None) -> RunDirectory:
    """A run whose directory the user has chosen."""
    directory = RunDirectory.create(run_id, path)
    assert directory.findable() == []
    return published_in(directory, pid)


def test_a_run_whose_directory_is_elsewhere_is_found_like_any_other(tmp_path: Path) -> None:
    directory = elsewhere(tmp_path / "mine")
    assert find_run().directory == find_run("mine").directory == str(directory.path)
    published("one")
    with pytest.raises(UserError, match="2 runs are alive: mine, one"):
        find_run()
    assert find_run("one").directory != str(directory.path)
    directory.remove()
    assert find_run().run_id == "one"
    assert [path.name for path in runs_home().iterdir()] == ["one"]


def test_of_runs_with_one_name_the_directory_says_which(tmp_path: Path) -> None:
    ours, theirs = elsewhere(tmp_path / "a", "x"), elsewhere(tmp_path / "b", "x")
    with pytest.raises(UserError, match=f"x in {ours.path}, x in {theirs.path}") as asked:
        find_run("x")
    assert asked.value.do in {f"Say which: --run-dir {one.path}" for one in (ours, theirs)}
    assert find_run("x", theirs.path).directory == str(theirs.path)


def test_a_name_that_is_not_that_of_the_directory_is_not_passed_over(tmp_path: Path) -> None:
    directory = elsewhere(tmp_path / "mine")
    with pytest.raises(UserError, match=f"Run other in {directory.path} is not alive") as refused:
        find_run("other", directory.path)
    assert refused.value.do == "There is another one: mine"


def test_of_a_dead_run_elsewhere_only_what_is_ours_is_removed(tmp_path: Path) -> None:
    dead = elsewhere(tmp_path / "mine", pid=2**22 + 1)
    assert live_runs() == []
    assert list(runs_home().iterdir()) == []
    assert dead.path.exists()


def test_a_run_that_cannot_be_found_by_itself_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMOVER_HOME", "/proc/nowhere")
    directory = RunDirectory.create(path=tmp_path / "mine")
    (told,) = directory.findable()
    assert f"give each of them --run-dir {directory.path}" in told
    published_in(directory)
    assert find_run(directory=directory.path).run_id == "mine"
    with pytest.raises(UserError, match="/proc/nowhere/runs cannot be used"):
        find_run()
    directory.remove()


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
def test_a_run_id_is_a_plain_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be the name"):
        RunDirectory.create(name)
    with pytest.raises(UserError, match="cannot be the name"):
        RunDirectory.create(name, tmp_path / "elsewhere")


@pytest.mark.parametrize("where", ["", "elsewhere"])
def test_the_same_call_takes_the_place_of_a_run_that_was_killed(where: str, tmp_path: Path) -> None:
    path = tmp_path / where if where else None
    run = read_run(published_in(RunDirectory.create("mine", path)).path)
    assert run is not None
    directory = RunDirectory(Path(run.directory), "mine")
    for host in ("another", run.host):
        directory.keep(msgspec.structs.replace(run, host=host, started=1))
        (directory.path / "run.json").unlink(missing_ok=True)
        if host != run.host:
            with pytest.raises(UserError, match="has died"):
                RunDirectory.create("mine", path, anew=True)
    again = RunDirectory.create("mine", path, anew=True)
    assert list(again.path.iterdir()) == []
    published_in(again)
    with pytest.raises(UserError, match="exists already"):
        RunDirectory.create("mine", path, anew=True)
