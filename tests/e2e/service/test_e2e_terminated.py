"""SIGTERM to every process of a run at once, as Slurm and systemd send it; and to one of them."""

import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from commanded import Commanded, commanded
from host_tools import words_of

from trainmover.journal.replay import replay
from trainmover.server.checkpoints.check import manifests

pytestmark = pytest.mark.turns(4)

LOADING = str(Path(__file__).parents[1] / "loading.py")


def terminate_all(run: Commanded, *, leaves_first: bool) -> None:
    """A process may have started another or have ended meanwhile."""
    family = [psutil.Process(run.process.pid), *run.look()]
    for process in reversed(family) if leaves_first else family:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("leaves_first", [True, False])
def test_a_run_that_is_stopped_by_signals_to_all_keeps_its_newest_step(
    leaves_first: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    flags = ["--machines", "2", "--standbys", "1", "--checkpoint", str(folder)]
    with commanded(tmp_path, *flags, script=LOADING) as run:
        run.until_warm(1)
        run.steps_more(5)
        terminate_all(run, leaves_first=leaves_first)
        code = run.process.wait(60)
    said = run.errors.read_text()
    assert code == 143, said
    ((_, kept),) = manifests(folder)
    assert f"stopped by SIGTERM.\nThe checkpoint of step {kept.step} is there." in said
    job = replay(tmp_path / "journal.sqlite")
    assert job.incidents == ()
    assert kept.step >= job.committed > 0
    assert run.left() == []


def test_a_run_without_checkpoints_ends_at_once(tmp_path: Path) -> None:
    with commanded(tmp_path, "--machines", "2", "--standbys", "1", script=LOADING) as run:
        run.until_warm(1)
        terminate_all(run, leaves_first=True)
        code = run.process.wait(60)
    assert code == 143, run.errors.read_text()
    assert replay(tmp_path / "journal.sqlite").incidents == ()
    assert run.left() == []


def test_a_worker_that_alone_is_terminated_is_lost(tmp_path: Path) -> None:
    with commanded(tmp_path, "--machines", "2", "--standbys", "1", script=LOADING) as run:
        run.until_warm(1)
        run.steps_more(3)
        named = [one for one in run.look() if {"trainmover.worker", "m1"} <= words_of(one)]
        min(named, key=lambda one: one.pid).send_signal(signal.SIGTERM)  # Others are its loaders'.
        run.until(lambda status: any(one["outcome"] == "done" for one in status["incidents"]))
        outcome = run.end()
    assert outcome.code == 0, outcome.text
    (incident,) = outcome.job.incidents
    assert incident.cause == "worker 0 of m1 ended (signal 15)"
    assert run.left() == []
