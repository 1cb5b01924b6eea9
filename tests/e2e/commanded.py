"""`trainmover run` with real training, as a process of its own, for what may be killed there."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from harness import TRAIN, Outcomes
from host_tools import words_of

from trainmover.cli.client import Client
from trainmover.errors import PeerLost, UserError
from trainmover.journal import Journal
from trainmover.journal.replay import replay
from trainmover.launch.runs import Run, find_run

SRC = str(Path(__file__).resolve().parents[2] / "src")
WAIT_S = 60.0


class Commanded:
    """One run. family: everything that was ever seen of it."""

    def __init__(self, folder: Path, *flags: str, pace: float = 0.02, script: str = TRAIN) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "trainmover", "run", *flags]
        command += ["--run-dir", f"{folder}/run", "--journal", f"{folder}/journal.sqlite", script]
        command += ["--pace", str(pace), "--steps", "100000", "--until", f"{folder}/done"]
        self.errors = folder / "stderr"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=errors,
                env=os.environ | {"PYTHONPATH": SRC}, start_new_session=True,
            )  # fmt: skip
        self.family: set[psutil.Process] = set()

    @property
    def run(self) -> Run:
        return find_run(directory=self.folder / "run")

    def status(self) -> dict[str, Any] | None:
        """None when nobody answers."""
        try:
            return Client(self.run).status()
        except (UserError, PeerLost):
            return None

    def until(self, fact: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The status of which it is true."""
        deadline = time.monotonic() + WAIT_S
        while True:
            status = self.status()
            if status is not None and fact(status):
                self.look()
                return status
            assert self.process.poll() is None, self.errors.read_text()
            assert time.monotonic() < deadline, (status, self.errors.read_text())
            time.sleep(0.01)

    def until_warm(self, count: int) -> dict[str, Any]:
        """Training, no incident open, so many standbys warm."""
        return self.until(
            lambda status: (
                status["change"] is None
                and sum(machine["state"] == "warm" for machine in status["machines"]) >= count
                and all(incident["outcome"] != "open" for incident in status["incidents"])
            )
        )

    def steps_more(self, count: int) -> None:
        begun = self.until(lambda _: True)["step"]
        self.until(lambda status: status["step"] >= begun + count)

    def look(self) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.family.update(children)
        return children

    def the(self, *words: str) -> psutil.Process:
        """The process whose command line has all of these words."""
        (found,) = [c for c in self.look() if set(words) <= words_of(c)]
        return found

    def kill_store(self) -> None:
        children = psutil.Process(self.process.pid).children()  # Workers are the agents'.
        forked = [child for child in children if "trainmover.server.store" in words_of(child)]
        (store,) = [child for child in forked if listens_at(child)]
        store.kill()

    def end(self) -> Outcomes:
        """Let it end by itself; what it leaves."""
        self.look()
        (self.folder / "done").touch()
        code = self.process.wait(WAIT_S)
        path = self.folder / "journal.sqlite"
        job = replay(path)
        with Journal.open(path) as journal:
            rows = {(row.rank, row.step): row.values for row in journal.rows()}
            used = list(journal.used())
            said = [entry.text for entry in journal.entries()]
        digests = {rank: digest for rank, (_, digest) in job.finished.items()}
        return Outcomes(code, self.errors.read_text(), job, rows, digests, [], said, used)

    def left(self) -> list[object]:
        """Processes and files of it that are still there."""
        alive = [process for process in self.family if words_of(process)]
        return [*alive, *self.folder.glob("run*")]


def listens_at(process: psutil.Process) -> set[int]:
    """Its ports."""
    try:
        connections = process.net_connections("inet")
    except psutil.NoSuchProcess:
        return set()
    return {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}


@contextmanager
def commanded(folder: Path, *flags: str, **options: Any) -> Iterator[Commanded]:
    """Whatever happens, nothing of it is left."""
    run = Commanded(folder, *flags, **options)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()
