"""Runs are found while they live, and what dead ones left is removed."""

import os
import socket
import stat
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from trainmover.errors import UserError
from trainmover.launch.checkpoints import CheckpointOptions
from trainmover.launch.options import RunOptions
from trainmover.launch.place import RunPlace
from trainmover.launch.runs import (
    Run,
    RunDirectory,
    find_run,
    live_runs,
    process_started,
    read_run,
    runs_home,
)
from trainmover.ownership import MARK, is_marked, mark, read_file
from trainmover.protocol.messages import LogSpec

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


def test_a_run_is_a_target_of_prometheus_while_it_lives(own_home: Path, tmp_path: Path) -> None:
    """Else each run that ends well would fire an alert."""
    here = published("night")
    elsewhere = RunDirectory.create("day", tmp_path / "day")
    elsewhere.findable()
    published_in(elsewhere)
    known = [msgspec.json.decode(path.read_bytes()) for path in targets_in(own_home)]
    assert sorted(one["labels"]["run"] for (one,) in known) == ["day", "night"]
    assert all(one["targets"] for (one,) in known)
    here.withdraw()
    elsewhere.withdraw()
    assert targets_in(own_home) == []


def targets_in(home: Path) -> list[Path]:
    """As deploy/prometheus/prometheus.yml has them."""
    return sorted(home.glob("runs/*/prometheus.json"))


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
    just_made, old = RunDirectory.create("just-made").path, RunDirectory.create("left-over").path
    (old / "m1").mkdir()
    (old / "m1" / "spec.msgpack").write_text("x")
    os.utime(old, (0, 0))
    assert live_runs() == []
    assert not dead.path.exists()
    assert not old.exists()
    assert just_made.exists()


def a_folder_called_runs(path: Path) -> Path:
    """A folder in it that is hours old, as TensorBoard leaves them."""
    experiment = path / "runs" / "exp1"
    experiment.mkdir(parents=True)
    path.chmod(0o755)
    (experiment / "events").write_text("precious")
    os.utime(experiment, (0, 0))
    return experiment


def test_what_has_no_mark_of_ours_is_never_removed(own_home: Path) -> None:
    experiment = a_folder_called_runs(own_home)
    private = own_home / "runs" / "private"
    private.mkdir(mode=0o700)
    os.utime(private, (0, 0))
    unmarked = published("before", pid=2**22 + 1)
    (unmarked.path / MARK).unlink()
    linked = own_home / "runs" / "linked"
    linked.symlink_to(marked_elsewhere(own_home))
    assert live_runs() == []
    assert (experiment / "events").read_text() == "precious"
    assert private.exists()
    assert (unmarked.path / "run.json").exists()
    assert (linked / MARK).exists()
    for directory in (unmarked, RunDirectory(experiment, "exp1"), RunDirectory(linked, "linked")):
        directory.remove()
        assert directory.path.exists()


def marked_elsewhere(home: Path) -> Path:
    path = home.parent / "elsewhere"
    path.mkdir(mode=0o700)
    mark(path)
    os.utime(path, (0, 0))
    return path


def test_a_forged_mark_is_none(own_home: Path) -> None:
    path = runs_home() / "other"
    path.mkdir(mode=0o700)
    (path / MARK).write_text("mine")
    os.utime(path, (0, 0))
    assert live_runs() == []
    assert path.exists()


def test_no_mode_of_a_folder_that_is_the_users_is_changed(own_home: Path, tmp_path: Path) -> None:
    experiment = a_folder_called_runs(own_home)
    directory = published("one")
    assert find_run().run_id == "one"
    for path in (own_home, own_home / "runs", experiment):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(UserError, match=r"is open to other users \(mode 0755\)") as refused:
        RunDirectory.create(path=tmp_path / "open")
    assert refused.value.do == f"chmod 700 {tmp_path}/open"
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o755


def test_runs_do_not_lie_where_others_could_exchange_them(own_home: Path) -> None:
    (own_home / "runs").mkdir(parents=True)
    (own_home / "runs").chmod(0o777)
    for act in (RunDirectory.create, live_runs):
        with pytest.raises(UserError, match=r"can be written by other users \(mode 0777\)"):
            act()
    (own_home / "runs").chmod(0o1777)
    assert published().path.parent == own_home / "runs"


def test_what_a_crash_has_left_of_a_removal_is_removed(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = published("one", pid=2**22 + 1)
    (directory.path / "m1").mkdir()
    with monkeypatch.context() as killed:
        killed.setattr("shutil.rmtree", lambda *_, **__: None)
        directory.remove()
    assert is_marked(directory.path)
    os.utime(directory.path, (0, 0))
    assert live_runs() == []
    assert not directory.path.exists()


def test_a_run_that_is_just_being_published_is_never_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = RunDirectory.create("one")
    os.utime(directory.path, (0, 0))

    def read_too_early(path: Path) -> bytes:
        try:
            return read_file(path)
        finally:
            published_in(directory)

    monkeypatch.setattr("trainmover.ownership.read_file", read_too_early)
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
    (tmp_path / "empty").mkdir(mode=0o700)
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
    assert [path.name for path in again.path.iterdir()] == [MARK]
    published_in(again)
    with pytest.raises(UserError, match="exists already"):
        RunDirectory.create("mine", path, anew=True)


@pytest.mark.parametrize("what", ["journal", "report", "checkpoint", "log_dir", "cwd"])
def test_what_is_to_stay_does_not_lie_in_what_is_removed(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir(mode=0o700)
    inside = run_dir / "kept"
    if what == "cwd":
        monkeypatch.chdir(run_dir)
    options = RunOptions(
        argv=["train.py"],
        run_dir=run_dir,
        journal=inside if what == "journal" else None,
        report=inside if what == "report" else None,
        checkpoints=CheckpointOptions(folder=inside if what == "checkpoint" else None),
        log=LogSpec(log_dir=str(inside) if what == "log_dir" else None),
    )
    with pytest.raises(UserError, match="lies in the run's private directory"):
        RunPlace.make(options, AsyncExitStack())
    assert run_dir.exists()
