"""The journal's disk is full in the middle of a run: no machine, no step and no record is lost."""

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from host_tools import until
from runs_of_trainmover import Running, until_said

from trainmover.cli.client import Client
from trainmover.cli.main import main
from trainmover.journal import Journal
from trainmover.journal.replay import replay
from trainmover.launch.runs import find_run

pytestmark = [pytest.mark.usefixtures("own_home"), pytest.mark.turns(4)]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte."""
    disk = tmp_path / "small"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "trainmover-test", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system can be mounted by root only")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """To the last byte."""
    with (disk / "fill").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    return disk / "fill"


def the_controller(running: Running) -> psutil.Process:
    children = psutil.Process(running.process.pid).children()
    (found,) = [child for child in children if "controller" in child.cmdline()]
    return found


def test_a_run_goes_on_in_memory_and_writes_all_of_it_when_there_is_room(
    start: type[Running], small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = start("--journal", str(small / "j"))
    running.until_warm()
    filled = fill(small)
    assert main(["move", "m2"]) == 0
    until_said("cannot be written (database or disk is full): the job goes on")
    capsys.readouterr()
    assert main(["status"]) == 0
    assert "records are in memory only" in capsys.readouterr().out
    the_controller(running).kill()
    until_said("the controller was restarted; 3 of 3 machines are back")
    assert main(["kill", "m1"]) == 0
    until_said("downtime 50 ms")
    filled.unlink()
    until_said("the journal is written again, with all that was kept in memory")
    told = [event["seq"] for event in Client(find_run()).events()]
    assert told == list(range(1, len(told) + 1))
    until(lambda: Client(find_run()).status()["journal"]["unwritten"] == 0, "it is written")
    running.finish.touch()
    assert running.ended()[0] == 0
    assert [incident.machine for incident in replay(small / "j").incidents] == ["m2", "m1"]
    with Journal.open(small / "j") as journal:
        steps = [(row.rank, row.step) for row in journal.rows()]
    assert steps == [(rank, step) for rank in range(2) for step in range(1, 16)]


def test_what_never_finds_room_is_told_at_the_end(start: type[Running], small: Path) -> None:
    running = start("--journal", str(small / "j"))
    running.until_warm()
    fill(small)
    assert main(["move", "m2"]) == 0
    until_said("the job goes on, and what happens is kept in memory")
    running.finish.touch()
    code, _, err = running.ended()
    assert code == 0
    assert "records: database or disk is full." in err.splitlines()[-1]


def test_a_disk_with_everything_of_the_run_may_be_full(
    start: type[Running], small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a quota on the home directory does it: the journal, and what is private to machines."""
    monkeypatch.setenv("TRAINMOVER_HOME", str(small / "home"))
    running = start()
    running.until_warm()
    filled = fill(small)
    assert main(["move", "m2"]) == 0
    until_said("m2 is warm")
    assert main(["kill", "m1"]) == 0
    until_said("downtime 50 ms")
    filled.unlink()
    running.finish.touch()
    assert running.ended()[0] == 0


def test_a_run_that_finds_the_disk_full_does_not_begin_and_says_so(
    start: type[Running], small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMOVER_HOME", str(small / "home"))
    (small / "home" / "runs").mkdir(parents=True)
    fill(small)
    code, out, err = start().ended()
    assert (code, out, len(err.splitlines())) == (2, "", 3)
    assert "could not be written: No space left on device." in err
    assert list((small / "home" / "runs").iterdir()) == []
