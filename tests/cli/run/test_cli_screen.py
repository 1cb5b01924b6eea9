"""What a run shows may go anywhere: to a full disk, a terminal that is closed, a reader that halts.

No machine is lost by it, and it is told once.
"""

import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from host_tools import environment, until
from runs_of_trainmover import Running, events, nothing_left, until_said

from trainmover.cli.client import Client
from trainmover.cli.main import main
from trainmover.journal.replay import replay
from trainmover.launch.runs import find_run

pytestmark = [pytest.mark.usefixtures("own_home"), pytest.mark.turns(8)]


class Terminal:
    """A pseudo terminal; `close` ends it as a window that is closed, without a signal."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        os.set_blocking(self.ours, False)

    def let_go(self) -> None:
        """Only the run has it now."""
        os.close(self.theirs)

    def read(self) -> str:
        with suppress(BlockingIOError, OSError):
            return os.read(self.ours, 1_000_000).decode()
        return ""

    def close(self) -> None:
        os.close(self.ours)


@contextmanager
def full() -> Iterator[int]:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    yield descriptor
    os.close(descriptor)


def finish(running: Running) -> tuple[int, str, str]:
    running.finish.touch()
    return running.ended()


def no_incident(journal: Path) -> bool:
    return replay(journal).incidents == ()


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_a_full_disk_behind_stdout_costs_no_machine(
    json: tuple[str, ...], start: type[Running], tmp_path: Path
) -> None:
    with full() as disk:
        running = start("--journal", str(tmp_path / "j"), *json, behave="chatty", stdout=disk)
    running.until_warm()
    until_said("stdout can no longer be written (No space left on device)")
    assert events().count("can no longer be written") == 1
    assert Client(find_run()).status()["controller"]["restarts"] == 0
    code, _, err = finish(running)
    assert code == 0
    assert "Traceback" not in err
    assert no_incident(tmp_path / "j")


def test_a_full_disk_behind_everything_does_not_hide_the_exit_status(
    start: type[Running], own_home: Path
) -> None:
    with full() as disk:
        running = start(stdout=disk, stderr=disk)
    running.until_warm()
    running.process.send_signal(signal.SIGTERM)
    assert running.ended()[0] == 143
    assert nothing_left(running, own_home)


def test_a_terminal_that_is_closed_without_a_signal_costs_no_machine(
    start: type[Running], tmp_path: Path
) -> None:
    terminal = Terminal()
    running = start(
        "--journal", str(tmp_path / "j"), behave="chatty",
        stdout=terminal.theirs, stderr=terminal.theirs,
    )  # fmt: skip
    terminal.let_go()
    running.until_warm()
    terminal.close()
    assert main(["move", "m2"]) == 0
    until_said("can no longer be written (Input/output error)")
    assert Client(find_run()).status()["controller"]["restarts"] == 0
    assert finish(running)[0] == 0
    assert [incident.machine for incident in replay(tmp_path / "j").incidents] == ["m2"]


def test_a_terminal_that_is_closed_with_its_signal_ends_the_run_in_order(
    start: type[Running], own_home: Path
) -> None:
    terminal = Terminal()
    running = start(stdout=terminal.theirs, stderr=terminal.theirs)
    terminal.let_go()
    running.until_warm()
    terminal.close()
    running.process.send_signal(signal.SIGHUP)
    assert running.ended()[0] == 129
    assert nothing_left(running, own_home)


def test_a_terminal_that_was_halted_holds_up_nothing(start: type[Running]) -> None:
    """Ctrl-S, or a pager: the controller answers, moves machines, and ends when it is told to."""
    theirs, ours = os.pipe()
    running = start(behave="chatty", stdout=ours, stderr=ours)
    os.close(ours)
    running.until_warm()
    assert main(["move", "m2"]) == 0
    assert Client(find_run()).status()["controller"]["restarts"] == 0
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(timeout=60) == 143
    os.close(theirs)


@pytest.mark.parametrize("columns", [60, 120])
def test_while_the_job_waits_the_foot_says_so_though_nothing_happens(
    columns: int, start: type[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And shows no time left of training."""
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    termios.tcsetwinsize(terminal.theirs, (24, columns))
    running = start("--standbys", "0", "--wait-for-machine", "600", stderr=terminal.theirs)
    terminal.let_go()
    until_said("m2 has rank 1")
    until(lambda: Client(find_run()).status()["step"] == 5, "it has committed")
    assert main(["kill", "m2"]) == 0
    until_said("waits for a machine, at most 600 s")
    seen: list[str] = []

    def drawn_again() -> bool:
        seen.append(terminal.read())
        drawn = "".join(seen).split("\r\x1b[K")
        return sum("waiting for a machine, the job ends in" in one for one in drawn) > 1

    until(drawn_again, lambda: "".join(seen))
    assert main(["stop"]) == 0
    assert running.process.wait(timeout=60) == 143
    terminal.close()


def test_under_nohup_a_closed_terminal_is_no_news(start: type[Running]) -> None:
    running = start(under=["nohup"])
    running.until_warm()
    running.process.send_signal(signal.SIGHUP)
    assert main(["move", "m2"]) == 0
    assert "SIGHUP" not in events()
    assert finish(running)[0] == 0


@pytest.mark.parametrize("closed", ["1>&-", "0<&- 1>&- 2>&-"])
def test_streams_that_were_closed_beforehand_do_no_harm(
    closed: str, start: type[Running], own_home: Path
) -> None:
    running = start(under=["sh", "-c", f'exec "$0" "$@" {closed}'], behave="chatty")
    running.until_warm()
    assert finish(running)[0] == 0
    assert nothing_left(running, own_home)


@pytest.mark.parametrize("argv", [["version"], ["--help"], ["version", "--json"]])
def test_an_answer_that_cannot_be_written_is_three_lines_and_1(argv: list[str]) -> None:
    with full() as disk:
        done = commanded(argv, disk)
    assert done.returncode == 1
    assert done.stderr.startswith("trainmover: The output could not be written: No space left")
    assert len(done.stderr.splitlines()) == 3


def commanded(argv: list[str], stdout: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "trainmover", *argv],
        stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment(), check=False,
    )  # fmt: skip


def test_in_the_background_of_a_script_it_is_still_stopped_by_an_interrupt(
    start: type[Running],
) -> None:
    """Where a shell has had it ignore SIGINT, and as torchrun is."""
    running = start(under=["sh", "-c", 'trap "" INT; exec "$0" "$@"'])
    running.until_warm()
    running.process.send_signal(signal.SIGINT)
    assert running.ended()[0] == 130
