"""Whole jobs with fake workers: store, server, agents, and nothing left behind."""

import asyncio
import errno
import os
import re
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from host_tools import Story, alive, words_of

from trainmover.controller.state import Kind, Outcome
from trainmover.errors import UserError
from trainmover.journal import Journal
from trainmover.journal.replay import replay
from trainmover.launch.run_job import RunHandle, RunOptions, run_job
from trainmover.launch.store import LOSSES_MAX
from trainmover.protocol.messages import LogSpec

FORK_SERVER = "trainmover.fork_server"


def processes_of_run() -> list[psutil.Process]:
    """Our descendants that live."""
    return [p for p in psutil.Process().children(recursive=True) if alive(p.pid)]


def the_process(*words: str) -> psutil.Process:
    """The one whose command line has all of these words. A server that forks begins with the names
    of all modules in its own."""
    lines = {process: words_of(process) for process in processes_of_run()}
    named = [p for p in lines if set(words) <= lines[p]]
    (found,) = [p for p in named if FORK_SERVER in words or FORK_SERVER not in lines[p]]
    return found


def test_a_job_runs_to_its_end_and_leaves_only_its_journal(tmp_path: Path) -> None:
    before = {process.pid for process in processes_of_run()}
    story = Story(tmp_path, nproc=2).then_finish("m3 is warm")
    result = story.run()
    assert (result.code, result.text) == (0, "")
    left = [p.pid for p in processes_of_run() if p.pid not in before]
    assert left == []
    assert not (tmp_path / "run").exists()
    with Journal.open(story.journal) as journal:
        rows = [(row.rank, row.step) for row in journal.rows()]
    assert rows == [(rank, step) for rank in range(4) for step in range(1, 6)]


def test_a_move_and_a_loss_and_the_journal_tells_the_same_story(tmp_path: Path) -> None:
    """The machine that was moved away from may be warm before every rank has committed a step."""
    moves: list[asyncio.Future[Any]] = []
    story = (
        Story(tmp_path)
        .when_warm(lambda h: moves.append(h.move("m2")))
        .when("m2 is warm", lambda h: moves[0].add_done_callback(lambda _: h.kill("m1")))
        .when("m1 was lost", lambda h: None)
        .then_finish("downtime")
    )
    result = story.run()
    assert result.code == 0
    kinds = [(i.kind, i.joiner, i.outcome) for i in result.job.incidents]
    assert kinds == [(Kind.MOVE, "m3", Outcome.DONE), (Kind.RECOVERY, "m2", Outcome.DONE)]
    assert moves[0].exception() is None
    assert replay(story.journal) == result.job
    lost = [line for line in story.heard if "was lost" in line]
    assert lost == ["m1 was lost: its agent has ended -> m2 takes rank 0"]
    assert not any("shadow line" in printed.text for printed in story.printed)


@pytest.mark.turns(4)
def test_a_stopped_agent_is_lost_and_its_machine_fenced(tmp_path: Path) -> None:
    def freeze(handle: RunHandle) -> None:
        the_process("trainmover.agent", "m2").send_signal(signal.SIGSTOP)

    story = Story(tmp_path).when_warm(freeze).then_finish("downtime")
    result = story.run()
    assert result.code == 0
    (lost,) = [line for line in story.heard if "was lost" in line]
    # On a busy machine one of the neighbours answers too late to be heard.
    others = "(nor m1 nor m3|nor m1|nor m3)"
    why = f"no heartbeat, and neither the controller {others} reaches it; no step is committed"
    assert re.fullmatch(f"m2 was lost: {why} -> m3 takes rank 1", lost)


@pytest.mark.turns(4)
def test_a_job_without_standbys_outlives_that_a_machine_is_silent(tmp_path: Path) -> None:
    """No step is committed meanwhile, and nobody could take its rank."""
    stopped: list[psutil.Process] = []

    def freeze(handle: RunHandle) -> None:
        stopped.append(the_process("trainmover.agent", "m2"))
        stopped[0].send_signal(signal.SIGSTOP)

    story = Story(tmp_path, standbys=0).when_safe("membership 1", freeze)
    story.when("m2 is not given up", lambda _: stopped[0].send_signal(signal.SIGCONT))
    story.then_finish("m2 is back")
    assert story.run().code == 0
    assert not any("was lost" in line for line in story.heard)


@pytest.mark.turns(4)
def test_an_os_error_of_a_watcher_is_not_taken_for_the_end_of_a_link(tmp_path: Path) -> None:
    """By asyncio, which would say nothing: it is a fault of ours, and ends the job."""

    def disk_is_full(handle: RunHandle) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    story = Story(tmp_path).when("m3 is warm", disk_is_full).then_finish("was lost")
    with pytest.raises(RuntimeError, match="could not be taken in"):
        story.run()


@pytest.mark.turns(4)
def test_a_script_that_raises_ends_the_job_with_its_traceback_once(tmp_path: Path) -> None:
    result = Story(tmp_path, "raise").run()
    assert result.code == 1
    assert result.text.count("TB ValueError: planted") == 1


@pytest.mark.turns(4)
def test_the_script_s_exit_status_is_the_job_s(tmp_path: Path) -> None:
    assert Story(tmp_path, "exit3").run().code == 3


@pytest.mark.turns(4)
@pytest.mark.usefixtures("own_home")
def test_a_worker_that_crashes_at_once_is_explained_by_its_last_words(tmp_path: Path) -> None:
    story = Story(tmp_path, standbys=0)
    options = story.options
    broken = RunOptions(
        argv=options.argv, worker=("/bin/sh", "-c", "echo no torch here >&2; exit 7")
    )
    printed: list[str] = []
    result = run_job(broken, on_change=lambda n, _: printed.append(getattr(n, "text", "")))
    assert result.code == 1
    assert "m1 worker 0: no torch here\n" in printed
    assert "exit status 7" in result.text


def kill_store(_: RunHandle) -> None:
    the_process("trainmover.server.store").kill()


STORE_LOST = "the key-value store was lost; groups meet in a new one"


@pytest.mark.turns(4)
def test_a_lost_store_is_replaced_and_known_to_machines_and_to_those_that_join_later(
    tmp_path: Path,
) -> None:
    story = (
        Story(tmp_path, standbys=2)
        .when_warm(kill_store)
        .when(STORE_LOST, lambda h: h.kill("m1"))
        .then_finish("downtime")
    )
    result = story.run()
    assert result.code == 0
    assert result.job.store not in ("", result.job.spec.store)
    assert replay(story.journal) == result.job


@pytest.mark.turns(4)
def test_a_store_that_is_lost_again_and_again_ends_the_job(tmp_path: Path) -> None:
    story = Story(tmp_path).when_warm(kill_store)
    for _ in range(LOSSES_MAX):
        story.when(STORE_LOST, kill_store)
    result = story.run()
    assert result.code == 1
    assert f"ended more than {LOSSES_MAX} times" in result.text


@pytest.mark.turns(4)
def test_a_stop_in_the_middle_ends_in_order(tmp_path: Path) -> None:
    result = Story(tmp_path).when("m3 is warm", lambda h: h.stop(130, "stopped")).run()
    assert (result.code, result.job.ended_because) == (130, "stopped")


@pytest.mark.turns(4)
def test_sigterm_to_the_run_is_a_stop(tmp_path: Path) -> None:
    story = Story(tmp_path).when("m3 is warm", lambda h: os.kill(os.getpid(), signal.SIGTERM))
    assert story.run().code == 143


@pytest.mark.turns(4)
def test_log_files_have_torchrun_s_layout_with_the_machine(tmp_path: Path) -> None:
    log = LogSpec(log_dir=str(tmp_path / "logs"), show=[1])
    story = Story(tmp_path, log=log, run_id="named").then_finish("m3 is warm")
    assert story.run().code == 0
    out = tmp_path / "logs" / "named" / "attempt_0" / "m1" / "0" / "stdout.log"
    assert out.read_text() == "hello from rank 0\nbye\n"
    assert story.lines() == "hello from rank 1\nbye\n"


@pytest.mark.turns(4)
def test_a_callback_that_raises_ends_the_job_and_leaves_nothing(tmp_path: Path) -> None:
    def fail(_: RunHandle) -> None:
        raise ZeroDivisionError("planted")

    story = Story(tmp_path).when("m3 is warm", fail)
    with pytest.raises(ZeroDivisionError):
        story.run()
    assert [p for p in processes_of_run() if "trainmover.agent" in words_of(p)] == []
    assert not (tmp_path / "run").exists()


def test_what_cannot_begin_is_a_user_error_and_leaves_nothing(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.journal.write_text("precious")
    with pytest.raises(UserError, match="exists already"):
        story.run()
    assert story.journal.read_text() == "precious"
    assert not (tmp_path / "run").exists()


def test_a_weak_token_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("short")
    token.chmod(0o600)
    with pytest.raises(UserError, match="shorter than"):
        Story(tmp_path, token_file=token).run()
